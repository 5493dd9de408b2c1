"""An HTTP balancer in front of a gateway, which counts requests, loses responses and can be switched off."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# Which the handler of the balancer sends by itself.
_OWN = {"connection", "keep-alive", "transfer-encoding", "date", "server"}


class Balancer:
    """Passes requests on to one gateway."""

    def __init__(self, gateway: str) -> None:
        self.gateway = urlsplit(gateway).netloc
        self.url = ""
        self.requests: list[str] = []
        self.lost: list[str] = []
        # Every nth response is lost after the gateway has sent it.
        self.loses_every = 0
        self._lock = threading.Lock()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        content = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.gateway, timeout=60)
        try:
            connection.request(handler.command, handler.path, content, dict(handler.headers))
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            handler.close_connection = True
            return
        finally:
            connection.close()
        with self._lock:
            self.requests.append(handler.path)
            is_lost = bool(self.loses_every) and len(self.requests) % self.loses_every == 0
            self.lost += [handler.path] if is_lost else []
        if is_lost:
            handler.close_connection = True
            return
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _OWN:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(answer)


@contextmanager
def balancing(gateway: str) -> Iterator[tuple[Balancer, ThreadingHTTPServer]]:
    """Run a balancer. To switch it off, shut its server down and close it."""
    balancer = Balancer(gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            balancer.pass_on(self)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = pass_on  # noqa: N815 - the names http.server calls

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    balancer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield balancer, server
    server.shutdown()
    server.server_close()
