"""The HTTP server while it stops."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from supervised import Connection

from mqgate.http.server.listening import listen
from mqgate.http.server.server import HttpServer
from mqgate.settings import HttpSettings

CLIENTS = 20


async def test_connections_queued_at_a_stop_are_served():
    """Closing a socket resets its queued connections, and a balancer would lose a request."""
    begun = asyncio.Event()
    (listener,) = listen("127.0.0.1", 0, 1)
    port = listener.getsockname()[1]
    server = HttpServer(_greets, HttpSettings(stop_timeout=timedelta(seconds=20)), started=begun.set)
    serving = asyncio.create_task(server.serve(listener))
    await begun.wait()

    # Nothing is awaited from here on, so no connection is accepted.
    queued = [Connection(port) for _ in range(CLIENTS)]
    for connection in queued:
        connection.send()
    server.leave(patience=20.0)
    responses = await asyncio.gather(*(asyncio.to_thread(connection.response) for connection in queued))
    await serving

    assert {body for _, body in responses} == {"hello"}
    assert all("connection: close" in head for head, _ in responses)
    for connection in queued:
        connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"FOO / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nMqgate-Key: a\x01b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
    ],
)
async def test_malformed_http_is_refused_with_a_problem_document(sent: bytes) -> None:
    """Operators need a request id for every refusal."""
    begun = asyncio.Event()
    (listener,) = listen("127.0.0.1", 0, 1)
    server = HttpServer(_greets, HttpSettings(stop_timeout=timedelta(seconds=20)), started=begun.set)
    serving = asyncio.create_task(server.serve(listener))
    await begun.wait()

    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(sent)
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    server.leave(patience=0.0)
    await serving

    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    problem = json.loads(body)
    assert status == "HTTP/1.1 400 Bad Request"
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-request-id"]
    assert (problem["status"], problem["code"], problem["retryable"]) == (400, "malformed_request", False)


async def _greets(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})
