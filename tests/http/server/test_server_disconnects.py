"""Disconnects: handlers learn of them, half-closed connections get their responses, and nothing is left behind."""

import gc

import pytest
from raw_client import echo, get, park, post, served, until

from mqgate.http.server.connection import Connection


@pytest.mark.parametrize("behind", [b"", get("/next"), get("/next") * 20, get("/next")[:-2]])
async def test_a_long_poll_ends_when_its_client_disconnects(behind: bytes) -> None:
    """Its messages are released at once, also if other requests were pipelined behind it."""
    gone: list[str] = []
    async with served(park(gone)) as server:
        client = await server.connect()
        await client.send(get("/park") + behind)
        await until(lambda: server.server.tasks)

        client.close()
        await until(lambda: gone)
        await server.connections(0)

        assert gone == ["/park"]
        assert server.closed == []


async def test_a_half_closed_client_gets_its_responses() -> None:
    """`nc -N` and simple health checkers close their side once their request is sent."""
    async with served(echo) as server:
        client = await server.connect()
        await client.send(post(b"abc", "/1") + get("/2") + post(b"incomplete", "/3")[:-1])
        client.half_close()

        responses = [await client.response() for _ in range(2)]

        assert [response.body for response in responses] == [b"POST /1 abc", b"GET /2 "]
        assert [response.headers.get("connection") for response in responses] == [None, "close"]
        assert await client.rest() == b""


async def test_a_half_closed_client_ends_its_long_poll() -> None:
    """It cannot be distinguished from a disconnected client, for which no message may stay leased."""
    gone: list[str] = []
    async with served(park(gone)) as server:
        client = await server.connect()
        await client.send(get("/park"))
        await until(lambda: server.server.tasks)

        client.half_close()

        assert await client.rest() == b""
        assert gone == ["/park"]
        assert server.closed == []


async def test_a_half_closed_client_without_a_complete_request_is_closed() -> None:
    """The rest of it can never arrive."""
    async with served(echo) as server:
        for part in (b"", get()[:-2], post(b"abc")[:-1]):
            client = await server.connect()
            await client.send(part)
            client.half_close()

            assert await client.rest() == b""
        await server.connections(0)


async def test_a_connection_that_ended_leaves_no_garbage() -> None:
    """Reference cycles would keep the memory of a connection flood until the next full garbage collection."""
    async with served(echo) as server:
        client = await server.connect()
        await client.exchange(get())
        # What earlier tests left behind.
        gc.collect()
        gc.disable()
        try:
            client.close()
            await server.connections(0)
            await until(lambda: not any(isinstance(found, Connection) for found in gc.get_objects()))
        finally:
            gc.enable()
