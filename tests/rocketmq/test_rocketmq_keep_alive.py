"""Half-open connections are detected by requests that time out, and by probes on idle connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_server import ScriptedServer, response_to

from mqgate.rocketmq.errors import NoResponse
from mqgate.rocketmq.transport import Connection, KeepAlive, Probe, connect

PROBE = Probe(30, {"topic": "probe"})
FOREVER = 60.0


@asynccontextmanager
async def connected(
    server: ScriptedServer, *, after: float = FOREVER, patience: float = 0.1
) -> AsyncIterator[Connection]:
    connection = await connect(server.address, PROBE, None, 5.0, KeepAlive(after, patience))
    yield connection
    connection.close("the test is over")
    await connection.closed


async def test_a_probe_is_sent_on_an_idle_connection(server: ScriptedServer) -> None:
    """Servers and firewalls close idle connections, and a call would notice it late."""
    server.reply = response_to
    async with connected(server, after=0.02, patience=5.0) as connection:
        requests = await server.received(3)

        assert {(request.code, request.fields["topic"]) for _, request in requests} == {(30, "probe")}
        assert connection.is_open


async def test_a_connection_without_a_response_to_the_probe_is_closed(server: ScriptedServer) -> None:
    """Parked pulls last half a minute. They must fail sooner if the server is down."""
    async with connected(server, after=0.02) as connection:
        parked = asyncio.create_task(connection.call(11, {}, b"", FOREVER))

        with pytest.raises(NoResponse, match="silent"):
            await asyncio.wait_for(parked, 10)

        assert not connection.is_open


async def test_no_probe_is_sent_on_a_busy_connection(server: ScriptedServer) -> None:
    """Any response shows that the server is live, so a probe would be a waste."""
    server.reply = response_to
    async with connected(server) as connection:
        for _ in range(3):
            await connection.call(11, {}, b"", 5.0)
            connection._watch()
        await connection.call(11, {}, b"", 5.0)
        assert [request.code for _, request in server.requests] == [11] * 4

        connection._watch()
        connection._watch()

        assert (await server.received(5))[-1][1].code == 30


async def test_a_request_that_times_out_closes_a_silent_connection(server: ScriptedServer) -> None:
    """If a server or network drops everything, the next call needs another connection."""
    async with connected(server, patience=0.1) as connection:
        parked = asyncio.create_task(connection.call(11, {}, b"", FOREVER))

        with pytest.raises(NoResponse, match="in time"):
            await connection.call(310, {}, b"x", 0.1)

        assert not connection.is_open
        with pytest.raises(NoResponse, match="silent"):
            await parked


async def test_a_slow_request_does_not_close_a_live_connection(server: ScriptedServer) -> None:
    """The server responds to other requests meanwhile, so only this request is slow."""
    server.reply = lambda request: response_to(request) if request.code == 11 else None
    async with connected(server, patience=0.1) as connection:
        slow = asyncio.create_task(connection.call(310, {}, b"x", 0.1))
        await server.received()

        await connection.call(11, {}, b"", 5.0)
        with pytest.raises(NoResponse, match="in time"):
            await slow

        assert connection.is_open


async def test_a_request_with_a_short_deadline_only_causes_a_probe(server: ScriptedServer) -> None:
    """A short deadline must not cost other requests their responses: the server may just be slow."""
    async with connected(server, patience=5.0) as connection:
        patient = asyncio.create_task(connection.call(310, {}, b"x", 5.0))
        for _ in range(3):
            with pytest.raises(NoResponse, match="in time"):
                await connection.call(11, {}, b"", 0.02)
        requests = await server.received(5)

        for link, request in requests:
            link.send(response_to(request, n=str(request.code)))

        assert (await patient).fields["n"] == "310"
        assert sorted(request.code for _, request in requests) == [11, 11, 11, 30, 310]
        assert connection.is_open


async def test_the_probe_after_a_short_deadline_detects_a_dead_connection(server: ScriptedServer) -> None:
    """A dead connection must be closed even if all requests have short deadlines."""
    async with connected(server, patience=0.1) as connection:
        with pytest.raises(NoResponse):
            await connection.call(11, {}, b"", 0.01)

        await asyncio.wait_for(connection.closed, 10)

    assert [request.code for _, request in server.requests] == [11, 30]
