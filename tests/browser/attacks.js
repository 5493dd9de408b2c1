// What a foreign page can make a browser send. Each function returns what the page could read of the response, or null.
// `call` is {method, path, body}; `target` is the origin of the gateway.

const DEADLINE = 60_000;
const settled = (start) =>
  new Promise((resolve) => {
    setTimeout(() => resolve("no end"), DEADLINE);
    start(resolve);
  });
const read = async (request) => {
  try {
    const response = await request;
    return response.type === "opaque" ? null : await response.text();
  } catch {
    return null;
  }
};
const options = (call, more) => ({
  method: call.method,
  body: call.method === "GET" ? undefined : call.body,
  ...more,
});
const text = { headers: { "content-type": "text/plain" } };
const json = { headers: { "content-type": "application/json" } };

const element = (name, attribute) => (target, call) =>
  settled((resolve) => {
    const made = document.createElement(name);
    made.onload = () => resolve("loaded");
    made.onerror = () => resolve(null);
    made[attribute] = target + call.path;
    document.body.append(made);
  });

// What a frame shows is out of reach if its document is of another origin.
const shown = (frame) => {
  try {
    return frame.contentDocument && frame.contentDocument.documentElement.textContent;
  } catch {
    return null;
  }
};
const frame = (target, call) =>
  settled((resolve) => {
    const made = document.createElement("iframe");
    made.onload = () => resolve(shown(made));
    made.src = target + call.path;
    document.body.append(made);
  });

const form = (enctype) => (target, call) =>
  settled((resolve) => {
    const made = document.createElement("iframe");
    made.name = `frame-${Math.random()}`;
    document.body.append(made);
    const form = document.createElement("form");
    Object.assign(form, { method: "post", enctype, action: target + call.path, target: made.name });
    // With text/plain the body is name=value: a JSON document that contains an equals sign passes unchanged.
    const field = document.createElement("input");
    const [name, ...value] = (call.body || '{"=":1}').split("=");
    Object.assign(field, { name, value: value.join("=") });
    form.append(field);
    document.body.append(form);
    made.onload = () => resolve(shown(made));
    form.submit();
  });

const xhr = (type) => (target, call) =>
  settled((resolve) => {
    const request = new XMLHttpRequest();
    request.open(call.method, target + call.path);
    request.setRequestHeader("content-type", type);
    request.onload = () => resolve(request.responseText);
    request.onerror = () => resolve(null);
    request.send(call.method === "GET" ? null : call.body);
  });

const beacon = async (target, call) => {
  navigator.sendBeacon(target + call.path, new Blob([call.body], { type: "text/plain" }));
  return null;
};

const eventSource = (target, call) =>
  settled((resolve) => {
    const source = new EventSource(target + call.path);
    source.onmessage = (event) => (source.close(), resolve(event.data));
    source.onopen = () => (source.close(), resolve("open"));
    source.onerror = () => (source.close(), resolve(null));
  });

const webSocket = (target, call) =>
  settled((resolve) => {
    const socket = new WebSocket(target.replace("http", "ws") + call.path);
    socket.onopen = () => (socket.send(call.body || ""), resolve("open"));
    socket.onerror = () => resolve(null);
  });

// A frame without an origin of its own sends `Origin: null`.
const sandboxed = (target, call) =>
  settled((resolve) => {
    const made = document.createElement("iframe");
    made.sandbox = "allow-scripts";
    addEventListener("message", (event) => event.source === made.contentWindow && resolve(event.data));
    const request = JSON.stringify([target + call.path, options(call, text)]);
    made.srcdoc = `<script>(async ([url, options]) => {
      let found = null;
      try { found = await (await fetch(url, options)).text(); } catch {}
      parent.postMessage(found, "*");
    })(${request})<\/script>`;
    document.body.append(made);
  });

// The page's own server redirects the request, with its method and body, to the gateway.
const redirected = (target, call) =>
  read(fetch(`/redirect?to=${encodeURIComponent(target + call.path)}`, options(call, text)));

const ANY = {
  "fetch no-cors": (target, call) => read(fetch(target + call.path, options(call, { ...text, mode: "no-cors" }))),
  "fetch cors": (target, call) => read(fetch(target + call.path, options(call, text))),
  "fetch with a preflight": (target, call) => read(fetch(target + call.path, options(call, json))),
  "xhr": xhr("text/plain"),
  "xhr with a preflight": xhr("application/json"),
  "sandboxed frame": sandboxed,
  "web socket": webSocket,
};
const ONLY = {
  GET: { image: element("img", "src"), script: element("script", "src"), frame, "event source": eventSource },
  POST: { "form text/plain": form("text/plain"), "form urlencoded": form("application/x-www-form-urlencoded"), beacon },
};

// Run every technique for every call. Return what could be read, by "technique: METHOD path".
window.attack = async (target, calls, { canRedirect }) => {
  const found = {};
  for (const call of calls) {
    const techniques = { ...ANY, ...ONLY[call.method], ...(canRedirect ? { redirected } : {}) };
    const names = Object.keys(techniques);
    const results = await Promise.all(names.map((name) => techniques[name](target, call)));
    names.forEach((name, index) => (found[`${name}: ${call.method} ${call.path}`] = results[index]));
  }
  return found;
};
