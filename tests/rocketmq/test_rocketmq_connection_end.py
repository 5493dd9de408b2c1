"""How a connection ends: pending requests fail at once, and no state is kept."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from scripted_server import Link, ScriptedServer, loop_until, response_to

from mqgate.rocketmq.errors import NoResponse, NotSent
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.transport import Connection, KeepAlive, Probe, connect

PROBE = Probe(30, {"topic": "probe"})
FOREVER = 60.0


@pytest.fixture
async def connection(server: ScriptedServer) -> AsyncIterator[Connection]:
    connection = await connect(server.address, PROBE, None, 5.0, KeepAlive(after=60.0))
    yield connection
    connection.close("the test is over")
    await connection.closed


def _send_partial_response(link: Link) -> None:
    link.send(response_to(Command(0, 1), body=b"cut off here")[:-5])
    link.transport.close()


@pytest.mark.parametrize(
    "end",
    [
        lambda link: link.send(struct.pack(">II", 0xFFFFFFFF, 0)),
        lambda link: link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda link: link.send(struct.pack(">II", 6, 2) + b"{}"),
        lambda link: link.transport.close(),
        lambda link: link.transport.write_eof(),
        lambda link: link.abort(),
        _send_partial_response,
    ],
    ids=["huge-frame", "http", "no-header", "closes", "half-closes", "resets", "mid-frame"],
)
async def test_all_pending_requests_fail_at_once(
    server: ScriptedServer, connection: Connection, end: Callable[[Link], None]
) -> None:
    """Callers must not wait for their deadline. Each gets its own exception."""
    calls = [asyncio.create_task(connection.call(11, {}, b"", FOREVER)) for _ in range(10)]
    link, _ = (await server.received(10))[0]

    end(link)

    async with asyncio.timeout(10):
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {NoResponse}
    assert len({id(error) for error in errors}) == 10
    assert not connection.is_open
    assert not connection._pending
    await asyncio.wait_for(link.lost.wait(), 10)


async def test_responses_before_malformed_data_are_delivered(server: ScriptedServer, connection: Connection) -> None:
    """A message that was confirmed need not be sent again."""
    calls = [asyncio.create_task(connection.call(310, {}, b"x", FOREVER)) for _ in range(2)]
    [(link, first), _] = await server.received(2)

    link.send(response_to(first, body=b"stored") + struct.pack(">II", 0, 0))

    stored, unknown = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(stored, Command)
    assert stored.body == b"stored"
    assert isinstance(unknown, NoResponse)


async def test_a_closed_connection_sends_nothing(server: ScriptedServer, connection: Connection) -> None:
    """A request that was not sent may be sent elsewhere. This also holds in the loop iteration of the close."""
    waiting = asyncio.create_task(connection.call(11, {}, b"", FOREVER))
    await server.received()

    connection.close("enough")

    assert not connection.is_open
    with pytest.raises(NotSent):
        await connection.call(11, {}, b"", FOREVER)
    with pytest.raises(NoResponse, match="enough"):
        await waiting
    await connection.closed
    connection.close("twice is fine")
    assert len(server.requests) == 1


async def test_a_server_that_stops_reading_delays_no_call_beyond_its_deadline(server: ScriptedServer) -> None:
    """Requests that cannot be written wait in their callers, and the write buffer stays limited."""
    server.reads_nothing = True
    keep_alive = KeepAlive(after=FOREVER, patience=0.3)
    connection = await connect(server.address, PROBE, None, 5.0, keep_alive)
    loop = asyncio.get_running_loop()

    async def call() -> float:
        started = loop.time()
        with pytest.raises((NotSent, NoResponse)):
            await connection.call(310, {}, bytes(1 << 20), 0.3)
        return loop.time() - started

    first = [asyncio.create_task(call()) for _ in range(10)]
    await loop_until(lambda: not connection._can_write.is_set())
    later = [asyncio.create_task(call()) for _ in range(100)]
    await asyncio.sleep(0)
    assert connection._transport is not None
    max_buffered = connection._transport.get_write_buffer_size()
    lasted = await asyncio.gather(*first, *later)

    assert max_buffered <= 11 << 20
    assert max(lasted) < 0.3 + 2.0
    assert not connection.is_open
    await connection.closed


async def test_a_request_that_cannot_be_written_in_time_is_not_sent(server: ScriptedServer) -> None:
    """The wait counts against the deadline, and NotSent reports that nothing was executed."""
    server.reads_nothing = True
    connection = await connect(server.address, PROBE, None, 5.0, KeepAlive(FOREVER, FOREVER))
    large = [asyncio.create_task(connection.call(310, {}, bytes(1 << 20), FOREVER)) for _ in range(12)]
    await loop_until(lambda: not connection._can_write.is_set())

    with pytest.raises(NotSent):
        await connection.call(310, {}, b"x", 0.1)

    assert len(connection._pending) == 12
    connection.close("done")
    await asyncio.wait(large)
    assert {type(call.exception()) for call in large} == {NoResponse}
    await connection.closed


async def test_calls_continue_when_a_server_reads_again(server: ScriptedServer) -> None:
    """A busy server is not a failed one."""
    server.reads_nothing = True
    server.reply = response_to
    connection = await connect(server.address, PROBE, None, 5.0)
    calls = [asyncio.create_task(connection.call(310, {}, bytes(1 << 20), FOREVER)) for _ in range(12)]
    await server.until(lambda: server.links)
    await loop_until(lambda: not connection._can_write.is_set())
    calls += [asyncio.create_task(connection.call(310, {}, b"later", FOREVER)) for _ in range(3)]
    await asyncio.sleep(0)

    server.links[0].transport.resume_reading()

    assert [response.code for response in await asyncio.gather(*calls)] == [0] * 15
    assert server.requests[-1][1].body == b"later"
    connection.close("done")
    await connection.closed


async def test_a_server_that_sends_requests_and_reads_nothing_uses_limited_memory(server: ScriptedServer) -> None:
    """Responses to requests of the server are optional, so they are dropped if the server does not read."""
    server.reads_nothing = True
    connection = await connect(server.address, PROBE, None, 5.0)
    await server.until(lambda: server.links)
    question = struct.pack(">II", 4 + 22, 22) + b'{"code":40,"opaque":1}'

    for _ in range(100):
        server.links[0].send(question * 5_000)
        await loop_until(lambda: not server.links[0].transport.get_write_buffer_size())

    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() < 16 << 20
    connection.close("done")
    await connection.closed
