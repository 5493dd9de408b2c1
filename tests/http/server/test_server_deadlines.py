"""Slow clients: every phase of a connection has a deadline, and every deadline frees what the client held."""

import asyncio
import json
from typing import Any

from raw_client import echo, get, post, read_body, respond, served

MIB = 1 << 20


async def test_a_head_that_does_not_arrive_is_timed_out() -> None:
    """Half a header would otherwise keep a connection for ever."""
    async with served(echo) as server:
        client = await server.connect()
        await client.send(b"GET / HTTP/1.1\r\nHost: loc")
        await server.connections(1)
        await _until(lambda: next(iter(server.server.connections))._head_read > 1)

        server.pass_time()
        response = await client.response()

        assert response.status == 408
        assert json.loads(response.body)["code"] == "request_timeout"
        assert await client.rest() == b""
        assert server.closed == ["header_timeout"]


async def test_single_bytes_do_not_extend_the_time_for_a_head() -> None:
    """A client that sends one byte every few seconds is as slow as one that sends none."""
    async with served(echo, header_timeout=10.0) as server:
        client = await server.connect()
        await server.connections(1)
        connection = next(iter(server.server.connections))
        await client.send(b"G")
        await _until(lambda: connection._head_read > 0)
        deadline = connection.deadline

        await client.send(b"ET")
        await _until(lambda: connection._head_read > 2)

        assert connection.deadline == deadline


async def test_a_body_that_does_not_arrive_is_timed_out() -> None:
    """The handler learns that the client is gone, so that nothing waits for the rest of the body."""
    seen = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        seen.append(await read_body(receive))

    async with served(app) as server:
        client = await server.connect()
        await client.send(post(b"x" * 100)[:-50])
        await server.connections(1)
        await _until(lambda: server.server.tasks)

        server.pass_time()
        response = await client.response()
        await client.rest()
        await _until(lambda: seen)

        assert response.status == 408
        assert seen == [None]
        assert server.closed == ["body_timeout"]


async def test_a_body_gets_more_time_as_it_arrives() -> None:
    """A large body on a slow line is no attack: the time-out grows with what has arrived."""
    async with served(echo, body_timeout=10.0, min_rate=1_000) as server:
        client = await server.connect()
        await server.connections(1)
        connection = next(iter(server.server.connections))
        await client.send(post(b"x" * 60_000)[:-10_000])
        await _until(lambda: connection._incoming is not None)
        begun = connection.deadline

        await client.send(b"x" * 5_000)
        await _until(lambda: connection.deadline > begun + 4)
        server.pass_time(5.0)
        response = await client.exchange(b"x" * 5_000)

        assert response.status == 200
        assert len(response.body) == len("POST / ") + 60_000


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    """A response that nobody asked for could be taken for that of the next request."""
    async with served(echo) as server:
        client = await server.connect()
        await client.exchange(get())

        server.pass_time()

        assert await client.rest() == b""
        assert server.closed == ["idle"]


async def test_a_long_poll_has_no_deadline() -> None:
    """The application decides how long it takes to respond."""
    go = asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await go.wait()
        await respond(send, b"done")

    async with served(app) as server:
        client = await server.connect()
        await client.send(get())
        await _until(lambda: server.server.tasks)

        server.pass_time()
        go.set()

        assert (await client.response()).body == b"done"


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    """Its response would stay in memory for as long as it likes."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"x" * 64 * MIB)

    async with served(app) as server:
        client = await server.connect()
        await client.send(get())
        await _until(lambda: any(each.unread_bytes for each in server.server.connections))

        server.pass_time(61.0)
        is_still_there = len(server.server.connections)
        server.pass_time()
        await server.connections(0)

        assert is_still_there, "64 MiB at the lowest allowed rate take longer than the time-out alone"
        assert server.closed == ["unread_response"]


async def test_responses_that_nobody_reads_have_a_limit_together() -> None:
    """Many slow readers, each within its deadline, must not take all memory: the one that waits longest goes first."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"x" * 64 * MIB)

    async with served(app, max_unread_bytes=100 * MIB) as server:
        for count in (1, 2):
            client = await server.connect()
            await client.send(get())
            await _until(
                lambda count=count: sum(bool(each.unread_bytes) for each in server.server.connections) == count
            )

        server.pass_time(0.0)
        await server.connections(1)

        assert server.closed == ["unread_response"]


async def _until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - the server reports this to nobody
        await asyncio.sleep(0.001)
