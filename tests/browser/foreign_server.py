"""A foreign web server: it serves a page that attacks, and redirects where the page requests it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["ATTACKS", "serving"]

ATTACKS = Path(__file__).with_name("attacks.js").read_text("utf-8")
_PAGE = f"<!doctype html><title>foreign</title><body><script>{ATTACKS}</script>".encode()


class _Handler(BaseHTTPRequestHandler):
    def _redirect(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        # 307 keeps the method and the body.
        self.send_response(307)
        self.send_header("location", parse_qs(urlsplit(self.path).query)["to"][0])
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        if self.path.startswith("/redirect"):
            self._redirect()
            return
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(_PAGE)))
        self.end_headers()
        self.wfile.write(_PAGE)

    do_POST = do_PUT = do_DELETE = _redirect  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[int]:
    """Serve on loopback, and yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
