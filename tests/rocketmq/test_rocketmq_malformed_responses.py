"""Valid frames with malformed content raise RemoteProtocolError, never another exception."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from scripted_server import ScriptedServer, response_to

from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.errors import RemoteProtocolError

MALFORMED_BODIES = [
    b"",
    b"null",
    b"[]",
    b"7",
    b'{"offsetTable":{"a":7}}',
    b'{"table":[]}',
    b'{"brokerDatas":[{}]}',
    b"\xff",
]
MEMBERS: dict[str, Callable[[RocketMQClient], Awaitable[Any]]] = {
    "route": lambda client: client.routes.find("t"),
    "ends": lambda client: client.offsets.bounds("broker", "t"),
    "progress": lambda client: client.offsets.progress("broker", "g", "t"),
    "topic": lambda client: client.admin.topic("broker", "t"),
    "runtime": lambda client: client.admin.runtime("broker"),
}
FIELDS: dict[str, Callable[[RocketMQClient], Awaitable[Any]]] = {
    "max": lambda client: client.offsets.max("broker", "t", 0),
    "committed": lambda client: client.offsets.committed("broker", "g", "t", 0),
    "send": lambda client: client.messages.send("broker", "t", 0, b"x", {}),
    "pull": lambda client: client.messages.pull("broker", "t", 0, 0, 1, group="g"),
}


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[RocketMQClient]:
    """Return a client whose name server and broker are the scripted server."""
    client = RocketMQClient([server.address])
    client.routes.masters["broker"] = server.address
    yield client
    await client.close()


@pytest.mark.parametrize("call", MEMBERS.values(), ids=MEMBERS.keys())
async def test_a_malformed_body_raises_a_protocol_error(
    server: ScriptedServer, client: RocketMQClient, call: Callable[[RocketMQClient], Awaitable[Any]]
) -> None:
    """Callers handle RocketMQError only. An empty body may be valid."""
    for body in MALFORMED_BODIES:
        server.reply = lambda request, body=body: response_to(request, body=body)
        try:
            found = await call(client)
        except RemoteProtocolError:
            continue
        assert not found or not any(found[1:]), (body, found)


@pytest.mark.parametrize("call", FIELDS.values(), ids=FIELDS.keys())
async def test_malformed_fields_raise_a_protocol_error(
    server: ScriptedServer, client: RocketMQClient, call: Callable[[RocketMQClient], Awaitable[Any]]
) -> None:
    """A number may be invalid or missing."""
    fields = {"offset": "x", "queueOffset": "", "nextBeginOffset": "?"}
    server.reply = lambda request: response_to(request, **fields)

    with pytest.raises(RemoteProtocolError):
        await call(client)


async def test_a_malformed_record_raises_a_protocol_error(server: ScriptedServer, client: RocketMQClient) -> None:
    """The offset id contains the address of the server, so the request is sent there."""
    host, port = server.address.split(":")
    place = bytes(map(int, host.split("."))).hex() + f"{int(port):08x}{0:016x}"
    for body in MALFORMED_BODIES:
        server.reply = lambda request, body=body: response_to(request, body=body)
        with pytest.raises(RemoteProtocolError):
            await client.messages.view(place)


async def test_no_request_is_sent_for_an_invalid_id(client: RocketMQClient) -> None:
    """The id contains the address of the server, so a mistyped id could reach any address."""
    for wrong in ("", "00", "7F00000100002A9F", "z" * 32):
        with pytest.raises(ValueError, match=r"hexadecimal"):
            await client.messages.view(wrong)
