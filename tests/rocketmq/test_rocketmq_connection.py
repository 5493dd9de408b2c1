"""One connection with concurrent requests: each gets its own response, and cancelled ones leave no state."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted_server import ScriptedServer, response_to

from mqgate.rocketmq.errors import NoResponse
from mqgate.rocketmq.remoting.command import Command, encode, encode_binary
from mqgate.rocketmq.transport import Connection, KeepAlive, Probe, connect

PROBE = Probe(30, {"topic": "probe"})


@pytest.fixture
async def connection(server: ScriptedServer) -> AsyncIterator[Connection]:
    connection = await connect(server.address, PROBE, None, 5.0, KeepAlive(after=60.0))
    yield connection
    connection.close("the test is over")
    await connection.closed


class CountingTransport:
    """A transport that records its writes."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_responses_in_any_order_reach_their_requests(server: ScriptedServer, connection: Connection) -> None:
    """A broker responds out of order. Confused responses would be confused messages."""
    calls = [asyncio.create_task(connection.call(11, {"n": str(n)}, b"", 5.0)) for n in range(200)]
    requests = await server.received(200)

    for link, request in reversed(requests):
        link.send(response_to(request, n=request.fields["n"]))

    assert [response.fields["n"] for response in await asyncio.gather(*calls)] == [str(n) for n in range(200)]
    assert not connection._pending


async def test_responses_of_both_header_types_are_decoded(server: ScriptedServer, connection: Connection) -> None:
    """The configuration of the server decides which one it sends."""
    server.reply = lambda request: encode_binary(Command(19, request.opaque, {"offset": "4"}, b"x", 1, "none"))

    response = await connection.call(11, {}, b"", 5.0)

    assert (response.code, response.fields, response.body, response.remark) == (19, {"offset": "4"}, b"x", "none")


async def test_a_response_in_single_bytes_is_decoded(server: ScriptedServer, connection: Connection) -> None:
    """The network may split a response anywhere."""
    call = asyncio.create_task(connection.call(11, {}, b"", 5.0))
    [(link, request)] = await server.received()

    for byte in response_to(request, body=b"slow"):
        link.send(bytes([byte]))
        await asyncio.sleep(0)

    assert (await call).body == b"slow"


async def test_responses_without_a_request_are_ignored(server: ScriptedServer, connection: Connection) -> None:
    """A wrong request number must not fail other requests."""
    call = asyncio.create_task(connection.call(11, {}, b"", 5.0))
    [(link, request)] = await server.received()

    for opaque in (request.opaque + 1, -1, 2**31 - 1, 2**70):
        link.send(encode(Command(0, opaque, body=b"wrong", flag=1)))
    link.send(response_to(request, body=b"right"))
    link.send(response_to(request, body=b"again"))

    assert (await call).body == b"right"
    assert connection.is_open


async def test_a_response_after_the_deadline_is_ignored(server: ScriptedServer, connection: Connection) -> None:
    """The request number is not reused, so a late response cannot be assigned to another request."""
    with pytest.raises(NoResponse, match="in time"):
        await connection.call(11, {}, b"", 0.05)
    [(link, late)] = await server.received()
    call = asyncio.create_task(connection.call(11, {}, b"", 5.0))
    await server.until(
        lambda: any(request.code == 11 and request.opaque != late.opaque for _, request in server.requests)
    )

    link.send(response_to(late, body=b"late"))
    link.send(response_to(server.requests[-1][1], body=b"right"))

    assert (await call).body == b"right"


async def test_requests_of_one_loop_iteration_are_sent_in_one_write(
    server: ScriptedServer, connection: Connection
) -> None:
    """One system call per request was most of the cost of small requests."""
    transport = CountingTransport(connection._transport)
    connection._transport = transport  # type: ignore[assignment]
    server.reply = response_to

    await asyncio.gather(*(connection.call(11, {"n": str(n)}, b"", 5.0) for n in range(50)))

    assert len(transport.writes) == 1
    assert len(server.requests) == 50


async def test_a_cancelled_call_leaves_no_state(server: ScriptedServer, connection: Connection) -> None:
    """Calls are cancelled often, and left-over state would grow without limit."""
    calls = [asyncio.create_task(connection.call(11, {}, b"", 60.0)) for _ in range(20)]
    await server.received(20)

    for call in calls:
        call.cancel()
    await asyncio.wait(calls)

    assert all(call.cancelled() for call in calls)
    assert not connection._pending
    assert connection.is_open


async def test_the_earliest_deadline_ends_first(connection: Connection) -> None:
    """All deadlines of a connection share one timer, whatever their order."""
    ended: list[float] = []

    async def call(deadline: float) -> None:
        with pytest.raises(NoResponse):
            await connection.call(11, {}, b"", deadline)
        ended.append(deadline)

    await asyncio.gather(*map(call, (0.15, 0.05, 0.1)))

    assert ended == [0.05, 0.1, 0.15]


async def test_a_request_that_cannot_be_encoded_leaves_no_state(server: ScriptedServer, connection: Connection) -> None:
    """An error of one caller is raised at once and does not affect others."""
    with pytest.raises(ValueError, match="larger"):
        await connection.call(310, {}, bytes(16 << 20), 5.0)
    with pytest.raises(UnicodeEncodeError):
        await connection.call(310, {"i": "\ud800"}, b"", 5.0)

    server.reply = response_to
    assert (await connection.call(11, {}, b"", 5.0)).code == 0
    assert not connection._pending


@pytest.mark.parametrize("is_one_way", [False, True])
async def test_a_request_from_the_server_is_declined(
    server: ScriptedServer, connection: Connection, is_one_way: bool
) -> None:
    """Server and client number their requests independently. Only a flag separates requests from responses."""
    call = asyncio.create_task(connection.call(11, {}, b"", 5.0))
    [(link, request)] = await server.received()

    link.send(encode(Command(40, request.opaque, {"consumerGroup": "g"}, flag=2 if is_one_way else 0)))
    if not is_one_way:
        _, (_, declined) = await server.received(2)
        assert (declined.code, declined.opaque, declined.flag) == (3, request.opaque, 1)
    assert not call.done()
    link.send(response_to(request, body=b"ours"))

    assert (await call).body == b"ours"
    assert len(server.requests) == (1 if is_one_way else 2)
