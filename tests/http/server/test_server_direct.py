"""Complete responses that the application passes to the server at once, without events of ASGI."""

import asyncio
from typing import Any

import pytest
from raw_client import get, park, post, read_body, respond, served, until

from mqgate.http.exchange import Response

BODY = b"0123456789"


async def by_events(scope: Any, receive: Any, send: Any) -> None:
    """Respond with two events. The target selects the status."""
    await read_body(receive)
    names = (b"content-type", b"content-length", b"x-request-id", b"x-more")
    headers = list(zip(names, (b"text/plain", b"10", b"a1", b"1"), strict=True))
    await send({"type": "http.response.start", "status": int(scope["path"][1:]), "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def at_once(scope: Any, receive: Any, send: Any) -> None:
    await read_body(receive)
    response = Response(int(scope["path"][1:]), BODY, b"text/plain", [(b"x-more", b"1")])
    assert scope["mqgate.direct"].respond(response, "a1")


@pytest.mark.parametrize(
    "requests",
    [
        get("/200") + get("/404"),
        b"HEAD /200 HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/200"),
        post(b"abc", "/503") + post(b"abc", "/200"),
        b"GET /200 HTTP/1.0\r\n\r\n",
        b"GET /200 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=["pipelined", "HEAD", "with bodies", "HTTP/1.0", "close"],
)
async def test_a_response_at_once_has_the_bytes_of_a_response_by_events(requests: bytes) -> None:
    """Clients must not notice which one the server used."""
    found = []
    for app in (by_events, at_once):
        async with served(app) as server:
            server.server._update_date = lambda: None  # type: ignore[method-assign]
            server.server.date_line = b"date: today\r\n"
            client = await server.connect()
            await client.send(requests)
            client.half_close()
            found.append(await client.rest())

    assert found[0].startswith(b"HTTP/1.1 ")
    assert found[1] == found[0]


async def test_a_response_waits_for_a_client_that_does_not_read_earlier_ones() -> None:
    """Responses to pipelined requests must not accumulate in memory."""
    refused = asyncio.Event()

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        direct = scope["mqgate.direct"]
        if not direct.respond(Response(200, b"x" * (8 << 20)), "a1"):
            refused.set()
            await respond(send, b"later")

    async with served(app) as server:
        client = await server.connect()
        await client.send(get() * 2)
        await refused.wait()

        bodies = [(await client.response()).body for _ in range(2)]

    assert [len(body) for body in bodies] == [8 << 20, 5]


@pytest.mark.parametrize("is_half", [True, False], ids=["half closed", "closed"])
async def test_a_disconnect_is_known_without_waiting(*, is_half: bool) -> None:
    """Leases are released before a response is written to a closed connection."""
    found: list[bool] = []
    directs: list[Any] = []
    parked = park([])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        directs.append(scope["mqgate.direct"])
        found.append(directs[0].has_disconnected())
        await parked(scope, receive, send)

    async with served(app) as server:
        client = await server.connect()
        await client.send(get("/park"))
        await until(lambda: found)
        client.half_close() if is_half else client.close()

        await until(directs[0].has_disconnected)

    assert found == [False]
