"""Slow clients: every phase of a connection has a deadline, and every deadline frees what the client held."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from raw_client import echo, get, park, post, read_body, refuse_early, respond, served, until

MIB = 1 << 20


async def test_a_head_that_does_not_arrive_is_timed_out() -> None:
    """Half a header would otherwise keep a connection open forever."""
    async with served(echo) as server:
        client = await server.connect()
        await client.send(b"GET / HTTP/1.1\r\nHost: loc")
        await server.connections(1)
        await until(lambda: next(iter(server.server.connections))._head_read > 1)

        server.pass_time()
        response = await client.response()

        assert response.status == 408
        assert json.loads(response.body)["code"] == "request_timeout"
        assert await client.rest() == b""
        assert server.closed == ["header_timeout"]


async def test_single_bytes_do_not_extend_the_time_for_a_head() -> None:
    """A client that sends one byte every few seconds is as slow as one that sends none."""
    async with served(echo, header_timeout=timedelta(seconds=10)) as server:
        client = await server.connect()
        await server.connections(1)
        connection = next(iter(server.server.connections))
        await client.send(b"G")
        await until(lambda: connection._head_read > 0)
        deadline = connection.deadline

        await client.send(b"ET")
        await until(lambda: connection._head_read > 2)

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
        await until(lambda: server.server.tasks)

        server.pass_time()
        response = await client.response()
        await client.rest()
        await until(lambda: seen)

        assert response.status == 408
        assert seen == [None]
        assert server.closed == ["body_timeout"]


async def test_a_body_gets_more_time_as_it_arrives() -> None:
    """A large body on a slow line is no attack: the time-out grows with what has arrived."""
    async with served(echo, body_timeout=timedelta(seconds=10), min_rate=1_000) as server:
        client = await server.connect()
        await server.connections(1)
        connection = next(iter(server.server.connections))
        await client.send(post(b"x" * 60_000)[:-10_000])
        await until(lambda: connection._incoming is not None)
        begun = connection.deadline

        await client.send(b"x" * 5_000)
        await until(lambda: connection.deadline > begun + 4)
        server.pass_time(5.0)
        response = await client.exchange(b"x" * 5_000)

        assert response.status == 200
        assert len(response.body) == len("POST / ") + 60_000


async def test_an_idle_connection_is_closed_without_a_response() -> None:
    """A client could take the response for that of its next request."""
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
        await until(lambda: server.server.tasks)

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
        await until(lambda: any(connection.is_write_paused for connection in server.server.connections))

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
            await until(
                lambda count=count: sum(connection.is_write_paused for connection in server.server.connections) == count
            )

        server.pass_time(0.0)
        await server.connections(1)

        assert server.closed == ["memory_limit"]


async def test_heads_that_do_not_end_have_a_limit_together() -> None:
    """Many clients, each within the size and time of its head, must not take all memory."""
    async with served(echo, max_unread_bytes=100_000) as server:
        for count in (1, 2):
            client = await server.connect()
            await client.send(get()[:-2] + b"X-Long: " + b"a" * 60_000)
            await until(
                lambda count=count: (
                    sum(connection.held_bytes > 60_000 for connection in server.server.connections) == count
                )
            )

        server.pass_time(0.0)
        await server.connections(1)

        assert server.closed == ["memory_limit"]


async def test_a_pipelined_body_that_does_not_arrive_is_timed_out() -> None:
    """Its deadline starts when its request is served. Without one, the connection would stay open forever."""
    async with served(echo) as server:
        client = await server.connect()
        await client.send(get("/first") + post(b"x" * 100, "/second")[:-50])
        first = await client.response()
        await until(lambda: next(iter(server.server.connections)).deadline < 1e9)

        server.pass_time()
        second = await client.response()

        assert (first.status, second.status) == (200, 408)
        assert server.closed == ["body_timeout"]


async def test_a_pipelined_body_that_nobody_wants_is_timed_out() -> None:
    """Its response was sent early. The client can neither send the next request nor keep the connection."""
    async with served(refuse_early) as server:
        client = await server.connect()
        await client.send(get("/first") + post(b"x" * 100, "/second")[:-50])
        statuses = [(await client.response()).status for _ in range(2)]

        server.pass_time()

        assert await client.rest() == b""
        assert statuses == [401, 401]
        assert server.closed == ["body_timeout"]


async def test_a_long_poll_has_no_deadline_while_the_next_request_arrives() -> None:
    """The end of its body and a part of the next request can arrive in one segment."""
    go = asyncio.Event()
    async with served(park([], go)) as server:
        client = await server.connect()
        poll = post(b"x" * 10, "/park")
        await client.send(poll[:-5])
        await until(lambda: server.server.tasks)
        await client.send(poll[-5:] + post(b"abc", "/next")[:-1])
        connection = next(iter(server.server.connections))
        await until(lambda: connection._pipeline)

        server.pass_time()
        go.set()
        responses = [await client.response(), await client.exchange(b"c")]

        assert [response.body for response in responses] == [b"parked", b"POST /next abc"]


async def test_a_fault_of_one_check_does_not_end_the_deadlines() -> None:
    """The checks of all connections run in one task."""
    checks: list[float] = []

    def fail_once(now: float) -> Iterator[None]:
        checks.append(now)
        if len(checks) == 1:
            raise RuntimeError("broken")
        yield

    async with served(echo) as server:
        server.server.connections.check_deadlines = fail_once  # type: ignore[method-assign]

        await until(lambda: len(checks) > 1)

    assert len(checks) > 1


async def test_others_run_while_many_connections_are_closed() -> None:
    """An attacker can let the time of all its connections end at once, and closing each takes some time."""
    async with served(echo) as server:
        clients = [await server.connect() for _ in range(250)]
        await server.connections(len(clients))
        now = server.server.loop.time() + 1e9

        closed_per_turn = [len(server.closed) for _ in server.server.connections.check_deadlines(now)]

        assert closed_per_turn == [99, 199]
        assert len(server.closed) == 250
