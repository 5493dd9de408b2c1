"""Limits while parsing, and on connections: what a client without a key can take from others."""

import asyncio
import json
from typing import Any

import pytest
from raw_client import Served, echo, get, post, refuse_early, respond, served, until

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "bomb",
    [
        HEAD + (b"X-A: " + b"b" * 1_000 + b"\r\n") * 90,
        HEAD + b"X-Endless: " + b"a" * 100_000,
        b"GET /" + b"a" * 100_000,
        b"\r\n" * 50_000,
        HEAD + b"X-Whole: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
    ids=["large headers", "endless header", "endless path", "empty lines", "complete head"],
)
async def test_a_head_beyond_the_limit_is_refused_while_it_arrives(bomb: bytes) -> None:
    """431, and the connection is closed: 32 MiB of headers took 800 MiB of memory."""
    async with served(echo) as server:
        client = await server.connect()

        response = await client.exchange(bomb)

        problem = json.loads(response.body)
        assert response.status == 431
        assert (problem["code"], problem["limit"]) == ("headers_too_large", 65_536)
        assert response.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_the_number_of_headers_is_limited() -> None:
    """The smallest header takes 4 bytes on the wire and 150 in memory."""
    async with served(echo) as server:
        client = await server.connect()
        allowed = await client.exchange(HEAD + b"a:\r\n" * 99 + b"\r\n")

        refused = await client.exchange(HEAD + b"a:\r\n" * 100 + b"\r\n")

        assert allowed.status == 200
        assert (refused.status, json.loads(refused.body)["limit"]) == (431, 100)


@pytest.mark.parametrize(
    "endless",
    [b"0\r\n" + b"X-A: b\r\n" * 10_000, b"0\r\nX-Endless: " + b"a" * 200_000, b"1;" + b"a" * 200_000],
    ids=["trailers", "endless trailer", "endless chunk extension"],
)
async def test_trailers_and_chunk_extensions_are_limited_like_a_head(endless: bytes) -> None:
    """The parser keeps a trailer in memory until it ends. Neither it nor an extension counts as body."""
    async with served(echo) as server:
        client = await server.connect()
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"

        response = await client.exchange(head + endless)

        assert response.status == 431


async def test_a_declared_body_is_not_awaited_by_an_early_response() -> None:
    """The response arrives whole although the body never comes, and the connection ends by itself."""
    async with served(refuse_early) as server:
        client = await server.connect()

        response = await client.exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33554432\r\n\r\n")

        assert (response.status, response.headers["connection"]) == (401, "close")
        assert await client.rest() == b""
        server.pass_time()
        await server.connections(0)


async def test_a_small_body_that_was_not_read_does_not_cost_the_connection() -> None:
    """Many clients send head and body in two segments. A refusal in between must not make them connect again."""
    async with served(refuse_early) as server:
        client = await server.connect()
        first = await client.exchange(post(b"x" * 100)[:-100])
        await client.send(b"x" * 100)

        second = await client.exchange(get())

        assert (first.status, second.status) == (401, 401)
        assert "connection" not in first.headers


async def test_unused_connections_make_room_for_new_ones() -> None:
    """Connections that do nothing must not keep others out, however many there are."""
    async with served(echo, max_connections=20) as server:
        used = await server.connect()
        await used.exchange(get("/first"))
        for _ in range(19):
            await server.connect()
        await server.connections(20)

        client = await server.connect()
        response = await client.exchange(get("/late"))

        assert response.body == b"GET /late "
        assert (await used.exchange(get("/again"))).body == b"GET /again "
        assert server.closed == ["evicted"]


async def test_a_connection_that_is_being_served_is_never_closed_for_another() -> None:
    """With requests on all of them the limit holds: 503, to be tried again."""
    async with _parked(max_connections=2) as (server, go):
        busy = [await server.connect(), await server.connect()]
        for client in busy:
            await client.send(get())
        while len(server.server.tasks) < 2:  # noqa: ASYNC110 - the server sets no event for this
            await asyncio.sleep(0.001)

        refused = await (await server.connect()).response()
        go.set()

        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(refused.body)["code"] == "overloaded"
        assert [(await client.response()).body for client in busy] == [b"done", b"done"]


async def test_clients_that_do_not_read_make_room() -> None:
    """They would otherwise keep others out for as long as the time-out of an unread response."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"x" * (64 << 20))

    async with served(app, max_connections=2) as server:
        for _ in range(2):
            await (await server.connect()).send(get() * 2)
        await until(lambda: sum(connection.is_write_paused for connection in server.server.connections) == 2)
        refused = await (await server.connect()).response()
        for connection in server.server.connections:
            connection.stalled_at -= 10.0

        client = await server.connect()
        await client.send(get())
        await until(lambda: "evicted" in server.closed)

        assert refused.status == 503
        assert server.closed == ["refused", "evicted"]


async def test_one_address_has_a_limit_of_its_own() -> None:
    """One client must not take the connections of all others."""
    async with _parked(max_connections_per_address=1) as (server, go):
        first = await server.connect("127.0.0.2")
        await first.send(get())
        while not server.server.tasks:  # noqa: ASYNC110 - the server sets no event for this
            await asyncio.sleep(0.001)

        refused = await (await server.connect("127.0.0.2")).response()
        other = await server.connect("127.0.0.3")
        go.set()

        assert refused.status == 503
        assert (await other.exchange(get())).status == 200


async def test_the_limit_of_an_address_does_not_block_a_trusted_proxy() -> None:
    """All connections of a balancer come from one address."""
    async with _parked(max_connections_per_address=1, trusted_proxies=("127.0.0.2/32",)) as (server, go):
        clients = [await server.connect("127.0.0.2") for _ in range(3)]
        go.set()

        assert {(await client.exchange(get())).status for client in clients} == {200}


async def test_connections_that_ended_are_not_counted() -> None:
    """The count per address would otherwise block an address forever."""
    async with served(echo, max_connections_per_address=2) as server:
        for _ in range(5):
            client = await server.connect()
            await client.exchange(get())
            client.close()
            await server.connections(0)

        assert not server.server.connections._by_address
        assert server.closed == []


async def test_pipelined_requests_are_limited() -> None:
    """Each of them takes memory before the first one is served."""
    async with _parked() as (server, go):
        client = await server.connect()
        await client.send(get() * 1_000)
        while not server.server.tasks:  # noqa: ASYNC110 - the server sets no event for this
            await asyncio.sleep(0.001)
        go.set()

        responses = (await client.rest()).split(b"HTTP/1.1 ")[1:]

        assert {response[:3] for response in responses[:-1]} == {b"200"}
        assert responses[-1].startswith(b"400")
        assert len(responses) == 102


async def test_pipelined_bytes_are_limited() -> None:
    """A client that sends on and on behind a long poll must not fill the memory. Nothing of it is lost either."""
    async with _parked() as (server, go):
        client = await server.connect()
        await client.send(get())
        await until(lambda: server.server.tasks)
        connection = next(iter(server.server.connections))
        sending = asyncio.ensure_future(client.send(post(b"x" * (32 << 20))))
        await until(lambda: connection._is_reading_paused)
        held = connection.held_bytes
        go.set()

        statuses = [(await client.response()).status for _ in range(2)]
        await sending

        assert held < 1 << 20
        assert statuses == [200, 200]


class _parked:  # noqa: N801 - used as a function
    """Serves requests that wait for `go`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    async def __aenter__(self) -> tuple[Served, asyncio.Event]:
        go = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await go.wait()
            await respond(send, b"done")

        self._served = served(app, **self._settings)
        return await self._served.__aenter__(), go

    async def __aexit__(self, *error: object) -> None:
        await self._served.__aexit__(*error)
