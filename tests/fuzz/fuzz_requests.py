"""Requests that are nearly right: made from the description of a call, then changed in a few places.

Two in five requests have no fault, so that the others meet messages, leases, timers and dead letters. A request depends
on the seed, on its number, and on the receipts, ids and cursors that earlier responses had. A failure is reported with
the whole request, so that it can be sent again without those.
"""

import json
import random
import re
from collections import defaultdict, deque
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import quote, quote_from_bytes

from hostile import corrupted, cursor, damaged, duration, hostile, instant, large, large_form, text
from surface import Call

__all__ = ["KNOWN", "FuzzRequest", "Generator"]

# Names that are registered, by the parameter or member that takes them.
KNOWN = {
    "topic": ("orders", "orders", "orders", "other"),
    "producer": ("shop",),
    "group": ("workers", "all", "singles", "ordered"),
    "consumer": ("workers", "all"),
    "queue": ("local:0", "local:1"),
    "clientId": ("c1", "c2"),
    "columns": ("offset,body", "offset", "offset,key,tag,properties"),
    "by": ("topic,kind", "topic", "group,clientId"),
}
_POOLED = {"receipt": "receipt", "receipts": "receipt", "ack": "receipt", "requestId": "requestId", "cursor": "next"}
_POOLED |= {"id": "id", "ids": "id", "retryMsgId": "id", "attemptId": "attemptId"}
_INSTANTS = {"from", "to", "at", "deliverAt", "start", "deliveryTimestamp", "expiresAt", "resetOffsetTimestamp"}
_DURATIONS = {"delay", "visibility", "wait", "retention", "clientTtl", "backoff", "initial", "max", "window"}
# A valid value would make the response wait.
_WAITS: dict[str, tuple[Any, ...]] = {
    "wait": (0, "0s", 0.001, "1ms", 0, 0, 0, 0, 0, -1, "1e309s", "x"),
    "pullTimeout": ("", "", "0", "-1", "x", "1e9"),
}
_HARVEST = re.compile(rb'"(receipt|next|id|requestId)":"([^"\\]{4,2000})"')
_TYPES = (
    *(
        b"application/json",
        b"application/json",
        b"application/json; charset=utf-16",
        b"text/plain",
        b"",
        b"\xff/\xfe",
        b"a" * 9_000,
    ),
    *(
        b"application/octet-stream",
        b"multipart/form-data; boundary=x",
        b"application/x-www-form-urlencoded",
        b"application/JSON",
    ),
    *(b"application/vnd.api+json", b"text/json;" * 50, b"multipart/form-data", b"application/xml"),
)
_ACCEPTS = (
    b"*/*",
    b"application/vnd.apache.arrow.stream",
    b"text/html",
    b"x",
    b"," * 500,
    b"*/*;q=0",
    b"a/b;q=" + b"9" * 400,
)
_HEADERS = (
    *(b"x-request-id", b"traceparent", b"tracestate", b"cookie", b"x-forwarded-for", b"x-forwarded-proto", b"origin"),
    *(b"range", b"mqgate-property-x", b"mqgate-property-", b"accept-encoding", b"if-none-match", b"sec-fetch-site"),
)
_MARK = "@large@"
# How often a call is chosen; 3 for those that are not listed.
_WEIGHTS = {
    **dict.fromkeys(("publish", "receive", "ack", "nack", "extend", "mqProduce", "mqMessage"), 12),
    **dict.fromkeys(("livez", "readyz", "info", "metrics", "mqProduceBatch", "pipelinesStats"), 1),
}
# Calls that delete what they name, or give a topic a thousand queues: not to what the others use. Most requests would
# find nothing, or take long.
_SPARING = {"deleteTopic", "deleteGroup", "deleteProducer", "mqUnregister", "putTopic"}
# Members and parameters without which a call is refused.
_NEEDED = {
    "publish": ("body",),
    "ack": ("receipts",),
    "nack": ("receipts",),
    "extend": ("receipts", "visibility"),
    "putGroup": ("topic",),
    "putProducer": ("topic",),
    "createKey": ("role",),
    "seek": ("to",),
    "retimeScheduled": ("delay",),
    "mqProduce": ("producer", "message"),
    **dict.fromkeys(("mqMessage", "mqMessagePost"), ("topic", "consumer")),
    **dict.fromkeys(("mqAck", "mqUnlock"), ("topic", "consumer", "requestId")),
    "mqConsumerConfig": ("consumer",),
}
# The share of large bodies among those with faults, and of the largest among those of a publish.
_LARGE_SHARE, _LARGE_PUBLISH_SHARE, _HUGE_SHARE = 0.02, 0.08, 0.3
# The chance that a value is hostile: none, one of several, most.
_HEATS = (0.0, 0.0, 0.1, 0.25, 0.7)
_SANE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("from", "start"), ("2020-01-01T00:00:00Z", 0, "2026-01-01T00:00:00+02:00")),
    **dict.fromkeys(("to", "at", "expiresAt"), ("2090-01-01T00:00:00Z", 4_000_000_000_000)),
    **dict.fromkeys(("deliverAt", "deliveryTimestamp"), ("2027-06-01T00:00:00Z", 1_806_000_000_000)),
    **dict.fromkeys(("delay", "visibility", "initial", "max", "backoff"), (1, "30s", "1500ms", "1h", 2.5)),
    **dict.fromkeys(("retention", "clientTtl"), ("1h", "2d")),
    **dict.fromkeys(("limit", "max", "through", "queues", "maxAttempts"), (1, 2, 3, 50)),
    **dict.fromkeys(("useCookie", "ordered", "times", "dryRun", "all"), (True, False)),
    **dict.fromkeys(("asyncRetryTimesIfSendFailed", "delayLevel"), (1, 2, 3)),
    "step": ("minute", "hour", "day"),
    "measure": ("delivery", "ack", "work"),
    "state": ("clean", "broken", "unknown"),
    "bodyBase64": ("AA==", "aGVsbG8="),
    "offset": (0, 1, 10),
    "role": ("admin",),
    "clientIp": ("10.0.0.1",),
}


class FuzzRequest(NamedTuple):
    number: int
    name: str
    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def wire(self) -> bytes:
        lines = b"".join(b"%b: %b\r\n" % header for header in self.headers)
        length = b"content-length: %d\r\n" % len(self.body) if self.body or self.method != b"GET" else b""
        return b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (self.method, self.target, lines, length, self.body)

    def __str__(self) -> str:
        headers = [header for header in self.headers if header[0] not in {b"host", b"authorization"}]
        parts = (self.method.decode(), _shortened(self.target), _shortened(headers), _shortened(self.body))
        return f"#{self.number} {self.name}: " + " ".join(parts)


class Generator:
    """Makes requests, and learns from responses which receipts, ids and cursors exist."""

    def __init__(self, calls: list[Call], schemas: dict[str, Any], seed: int, credentials: dict[str, str]) -> None:
        self._calls = calls
        self._weights = list(accumulate(_WEIGHTS.get(call.name, 3) for call in calls))
        self._schemas = schemas
        self._seed = seed
        self._host = ((b"host", b"localhost"), (b"authorization", credentials["authorization"].encode()))
        self._mu = credentials["mu"].encode()
        # The key that the requests carry: without it all others would be refused.
        self._spared = credentials["key_id"]
        self._pool: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=200))
        self._rng = random.Random(seed)
        self._heat = 0.0

    def learn(self, response: bytes) -> None:
        for name, value in _HARVEST.findall(response[:20_000]):
            found = value.decode("utf-8", "replace")
            if found != self._spared:
                self._pool[name.decode()].append(found)

    def request(self, number: int) -> FuzzRequest:
        rng = self._rng = random.Random((self._seed << 32) + number)
        self._heat = rng.choice(_HEATS)
        (call,) = rng.choices(self._calls, cum_weights=self._weights)
        method = (
            call.method
            if rng.random() < 0.98 or not self._heat
            else rng.choice(("GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "PATCH"))
        )
        body, kind = self._body(call)
        headers = self._headers(call, kind)
        return FuzzRequest(number, call.name, method.encode(), self._target(call), headers, body)

    def _is_hostile(self) -> bool:
        return self._rng.random() < self._heat

    def _target(self, call: Call) -> bytes:
        path = call.path
        for name in call.path_names:
            path = path.replace(f"{{{name}}}", self._path_part(call, name), 1)
        query = self._query(call) if call.query or self._rng.random() < self._heat / 10 else ""
        return f"{path}?{query}".encode()[:60_000] if query else path.encode()

    def _path_part(self, call: Call, name: str) -> str:
        rng = self._rng
        if call.name in _SPARING:
            return f"fuzz-{rng.randrange(4)}"
        value = self._named(name)
        if call.method == "PUT" and rng.random() < 0.3:
            value = f"fuzz-{rng.randrange(4)}"
        return self._encoded(value)

    def _query(self, call: Call) -> str:
        rng = self._rng
        if rng.random() < self._heat / 10:
            return rng.choice(("&&==;%", "a" * 50_000, "%00=%ff", "=" * 500, "a=1&" * 2_000, "%", "?" * 9, "x=%c0%80"))
        share = rng.choice((0.2, 0.9))
        needed = _NEEDED.get(call.name, ())
        pairs = [(name, self._named(name)) for name in call.query if name in needed or rng.random() < share]
        if call.name in _SPARING:
            pairs = [(name, f"fuzz-{rng.randrange(4)}") for name, _ in pairs]
        pairs += [(text(rng), text(rng))] if rng.random() < self._heat / 10 else []
        pairs += pairs[:1] if rng.random() < self._heat / 10 else []
        return "&".join(f"{self._encoded(name)}={self._encoded(value)}" for name, value in pairs)

    def _named(self, name: str) -> str:
        """Return a text for a parameter or member of this name."""
        rng = self._rng
        if name in _WAITS:
            return str(rng.choice(_WAITS[name]))
        if self._is_hostile():
            return str(instant(rng)) if name in _INSTANTS else cursor(rng) if name == "cursor" else text(rng)
        if name in _POOLED:
            return self._pooled(name)
        if name in KNOWN or name in _SANE:
            value = rng.choice(KNOWN.get(name) or _SANE[name])
            return str(value).lower() if isinstance(value, bool) else str(value)
        return rng.choice(("k", "x", "a", "b c", "0"))

    def _pooled(self, name: str) -> str:
        found = self._pool[_POOLED[name]]
        if not found:
            return "x"
        value = self._rng.choice(found)
        return corrupted(self._rng, value) if self._heat and self._rng.random() < 0.5 else value

    def _encoded(self, value: str) -> str:
        if self._rng.random() < self._heat / 20:
            raw = self._rng.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x00", b"/", b"\r\n", b"%"))
            return quote_from_bytes(raw, safe="")
        return quote(value, safe=":,-_.", errors="surrogatepass")[:20_000]

    def _headers(self, call: Call, kind: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
        rng, heat = self._rng, self._heat
        headers = [self._host[0], (b"authorization", _header(rng))] if rng.random() < heat / 20 else [*self._host]
        if kind is not None:
            headers.append((b"content-type", kind))
        for name in call.headers:
            if name == "MU":
                headers.append((b"mu", _header(rng) if self._is_hostile() else self._mu))
            elif rng.random() < 0.25 and kind != b"application/json":
                headers.append((name.encode(), _header(rng)))
        if rng.random() < 0.15:
            headers.append((b"accept", rng.choice(_ACCEPTS if heat else _ACCEPTS[:2])))
        if rng.random() < heat / 2:
            headers.append((rng.choice(_HEADERS), _header(rng)))
        if rng.random() < heat / 50:
            headers += [(b"mqgate-property-%d" % i, b"v") for i in range(rng.choice((50, 400)))]
        return tuple(headers)

    def _body(self, call: Call) -> tuple[bytes, bytes | None]:
        rng, heat = self._rng, self._heat
        if call.takes_form:
            form = "&".join(
                f"{name}={self._encoded(self._named(name))}" for name in ("keys", "orderId") if rng.random() < 0.5
            )
            body = damaged(rng, form.encode()) if rng.random() < heat / 3 else form.encode()
            if heat and rng.random() < _LARGE_SHARE:
                return large_form(rng, rng.choice((1 << 16, call.max_body_bytes - 100, call.max_body_bytes + 1)))
            return body, rng.choice(_TYPES) if self._is_hostile() else b"application/x-www-form-urlencoded"
        if call.body is None:
            return (large(rng, 1_000), rng.choice(_TYPES)) if rng.random() < heat / 10 else (b"", None)
        kind = rng.choice(_TYPES) if rng.random() < heat / 3 else b"application/json"
        if heat and rng.random() < (_LARGE_PUBLISH_SHARE if call.name == "publish" else _LARGE_SHARE):
            return self._large_body(call), kind
        body = _json(self._mutated(self._sample(call.body, call.name)))
        return damaged(rng, body) if rng.random() < heat / 3 else body, kind

    def _large_body(self, call: Call) -> bytes:
        """Return a body near the limit of the call: of one large value, or with one in a member."""
        rng = self._rng
        size = call.max_body_bytes - 20_000 if rng.random() < 0.8 else call.max_body_bytes + 1_000
        if size > 4 << 20 and rng.random() > _HUGE_SHARE:
            size = rng.choice((1 << 18, 1 << 20, 4 << 20))
        assert call.body is not None
        value = large(rng, size)
        if rng.random() < 0.4:
            return value
        members = list(self._resolved(call.body).get("properties", {})) or ["body"]
        sample = {**_object(self._sample(call.body, call.name)), rng.choice(members): _MARK}
        return _json(sample).replace(f'"{_MARK}"'.encode(), value, 1)

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        return schema

    def _sample(self, schema: dict[str, Any], name: str, depth: int = 0) -> Any:
        """Return a value that the schema allows; one that the gateway accepts, unless it is to be hostile."""
        rng = self._rng
        schema = self._resolved(schema)
        if "properties" in schema:
            return self._object(schema, name, depth)
        if name in _WAITS or "enum" in schema:
            return rng.choice(_WAITS.get(name) or schema["enum"])
        if self._is_hostile():
            return (instant if name in _INSTANTS else duration if name in _DURATIONS else hostile)(rng)
        if name in _SANE:
            return rng.choice(_SANE[name])
        if "anyOf" in schema:
            return self._sample(rng.choice(schema["anyOf"]), name, depth)
        return self._typed(str(schema.get("type")), schema, name, depth)

    def _typed(self, kind: str, schema: dict[str, Any], name: str, depth: int) -> Any:
        rng = self._rng
        if kind == "array":
            return [self._sample(schema.get("items", {}), name, depth + 1) for _ in range(rng.randrange(1, 4))]
        if kind == "string":
            return self._named(name)
        if kind in {"integer", "number"}:
            return rng.choice((1, 2, 10, 100))
        if kind in {"boolean", "null"}:
            return rng.random() < 0.5 if kind == "boolean" else None
        if kind == "object":
            return {"local:0": rng.randrange(10)} if name == "to" else {"k": "v"}
        # Any JSON: a message of a batch, or a message's body.
        return {"body": "x", "key": "k"} if name == "messages" else rng.choice(("x", {"n": 1}, [1, 2], 0.5))

    def _object(self, schema: dict[str, Any], name: str, depth: int) -> dict[str, Any]:
        rng = self._rng
        members = schema["properties"]
        needed = (*schema.get("required", ()), *_NEEDED.get(name, ()))
        share = rng.choice((0.0, 0.2, 0.9)) if depth < 4 else 0.1
        return {
            name: self._sample(member, name, depth + 1)
            for name, member in members.items()
            if name in needed or rng.random() < share
        }

    def _mutated(self, value: Any) -> Any:
        """Return the value with up to three members replaced, removed or added."""
        rng = self._rng
        if not self._heat or not isinstance(value, dict):
            return value
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            names = [name for name in value if name not in _WAITS]
            kind = rng.random()
            if not names or kind < 0.1:
                value[text(rng)] = hostile(rng)
            elif kind < 0.3:
                del value[rng.choice(names)]
            elif kind < 0.5 and isinstance(inner := value[rng.choice(names)], dict):
                self._mutated(inner)
            else:
                value[rng.choice(names)] = hostile(rng)
        return value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(value: Any) -> bytes:
    """Encode with NaN, Infinity and lone surrogates, as a careless client would."""
    return json.dumps(value).encode()


def _header(rng: random.Random) -> bytes:
    raw = str(rng.choice((text, instant, duration))(rng)).encode("utf-8", "surrogatepass")
    return re.sub(rb"[\r\n\x00]", b"?", raw).strip()[:8_000]


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 600 else f"{shown[:400]}...{shown[-100:]} ({len(value)} bytes)"
