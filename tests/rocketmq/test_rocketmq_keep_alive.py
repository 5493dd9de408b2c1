"""Half-open connections are found: by requests that wait in vain, and by a question when nobody asks anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_server import ScriptedServer, answer_to

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


async def test_a_silent_connection_is_asked_something(server: ScriptedServer) -> None:
    """Servers and firewalls close what is silent, and a call is the worst moment to notice."""
    server.reply = answer_to
    async with connected(server, after=0.02, patience=5.0) as connection:
        requests = await server.received(3)

        assert {(request.code, request.fields["topic"]) for _, request in requests} == {(30, "probe")}
        assert connection.is_open


async def test_a_server_that_does_not_answer_the_question_is_gone(server: ScriptedServer) -> None:
    """Long polls wait for half a minute; with a dead server they should not."""
    async with connected(server, after=0.02) as connection:
        parked = asyncio.create_task(connection.call(11, {}, b"", FOREVER))

        with pytest.raises(NoResponse, match="silent"):
            await asyncio.wait_for(parked, 10)

        assert not connection.is_open


async def test_a_talkative_connection_is_not_asked(server: ScriptedServer) -> None:
    """Any answer shows that the server lives; the question would only cost."""
    server.reply = answer_to
    async with connected(server) as connection:
        for _ in range(3):
            await connection.call(11, {}, b"", 5.0)
            connection._watch()
        await connection.call(11, {}, b"", 5.0)
        assert [request.code for _, request in server.requests] == [11] * 4

        connection._watch()
        connection._watch()

        assert (await server.received(5))[-1][1].code == 30


async def test_a_request_that_waits_in_vain_ends_a_silent_connection(server: ScriptedServer) -> None:
    """A server that accepts and never answers, or a network that swallows: the next call needs another connection."""
    async with connected(server, patience=0.1) as connection:
        parked = asyncio.create_task(connection.call(11, {}, b"", FOREVER))

        with pytest.raises(NoResponse, match="in time"):
            await connection.call(310, {}, b"x", 0.1)

        assert not connection.is_open
        with pytest.raises(NoResponse, match="silent"):
            await parked


async def test_a_slow_request_does_not_end_a_connection_that_is_alive(server: ScriptedServer) -> None:
    """The server answers others meanwhile, so it is only this request that takes long."""
    server.reply = lambda request: answer_to(request) if request.code == 11 else None
    async with connected(server, patience=0.1) as connection:
        slow = asyncio.create_task(connection.call(310, {}, b"x", 0.1))
        await server.received()

        await connection.call(11, {}, b"", 5.0)
        with pytest.raises(NoResponse, match="in time"):
            await slow

        assert connection.is_open


async def test_an_impatient_request_only_causes_the_question(server: ScriptedServer) -> None:
    """A caller in a hurry must not cost the others their answers; the server may just be a little slow."""
    async with connected(server, patience=5.0) as connection:
        patient = asyncio.create_task(connection.call(310, {}, b"x", 5.0))
        for _ in range(3):
            with pytest.raises(NoResponse, match="in time"):
                await connection.call(11, {}, b"", 0.02)
        requests = await server.received(5)

        for link, request in requests:
            link.send(answer_to(request, n=str(request.code)))

        assert (await patient).fields["n"] == "310"
        assert sorted(request.code for _, request in requests) == [11, 11, 11, 30, 310]
        assert connection.is_open


async def test_the_question_after_an_impatient_request_finds_the_dead(server: ScriptedServer) -> None:
    """Callers in a hurry alone must not keep a dead connection in use."""
    async with connected(server, patience=0.1) as connection:
        with pytest.raises(NoResponse):
            await connection.call(11, {}, b"", 0.01)

        await asyncio.wait_for(connection.closed, 10)

    assert [request.code for _, request in server.requests] == [11, 30]
