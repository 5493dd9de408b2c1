"""Helpers for tests of the sink: reading a topic, and a proxy that injects failures."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from mqgate.client import Client

__all__ = ["Way", "stored", "way_to"]

_COLUMNS = ("id", "queue", "offset", "key", "tag", "properties", "body")


def stored(client: Client, topic: str) -> list[dict[str, Any]]:
    """Return all messages of a topic, queue by queue."""
    return [
        row | {"properties": dict(row["properties"] or ())}
        for queue in client.queues(topic, times=False)
        for batch in client.read_queue(topic, queue["queue"], queue["min"], 100_000, _COLUMNS)
        for row in batch.to_pylist()
    ]


@dataclass
class Way:
    """Proxy to a real gateway that forwards requests or injects the next failure."""

    url: str = ""
    troubles: list[str] = field(default_factory=list)
    passed: list[bytes] = field(default_factory=list)


@contextmanager
def way_to(gateway: str) -> Iterator[Way]:
    """Inject `busy` (503), `cut` (not forwarded, no response), `lost` (forwarded, no response) or `page` (HTML)."""
    way = Way()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            trouble = way.troubles.pop(0) if way.troubles else None
            if trouble == "busy":
                self._answer(503, b'{"code": "overloaded", "detail": "try again", "retryable": true}', "1")
                return
            if trouble == "page":
                self._answer(200, b"<html>", None)
                return
            if trouble != "cut":
                response = httpx.post(
                    f"{gateway}{self.path}", content=content, headers={"Content-Type": "application/json"}
                )
                way.passed.append(content)
            if trouble in {"cut", "lost"}:
                self.close_connection = True
                return
            self._answer(response.status_code, response.content, response.headers.get("Retry-After"))

        def _answer(self, status: int, content: bytes, retry_after: str | None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing: only failures should appear in the output of a test."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    way.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield way
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
