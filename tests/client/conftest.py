"""An HTTP server with prepared responses, and a client of a running gateway."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest

from mqgate.client import Client


@dataclass
class Peer:
    """HTTP server that returns the prepared responses in order. None closes the connection without a response."""

    url: str = ""
    responses: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def will_answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.responses.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))

    def will_hang_up(self) -> None:
        self.responses.append(None)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            peer.requests.append((self.command, self.path, dict(self.headers), content))
            scripted = peer.responses.pop(0)
            if scripted is None:
                return
            status, headers, body = scripted
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the names http.server calls

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    peer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield peer
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(gateway_url: str) -> Iterator[Client]:
    with Client(gateway_url) as client:
        yield client


@pytest.fixture
def names(client: Client) -> tuple[str, str, str]:
    """Create a topic with one queue, its producer and a group in queue mode."""
    suffix = uuid4().hex
    topic, producer, group = f"topic-{suffix}", f"producer-{suffix}", f"group-{suffix}"
    client.topics.put(topic, {"queues": 1})
    client.producers.put(producer, {"topic": topic})
    client.groups.put(group, {"topic": topic, "mode": "queue"})
    return topic, producer, group
