"""Answers that are well-formed frames and say nothing sensible: an error of the protocol, never a bug of ours."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from scripted_server import ScriptedServer, answer_to

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
    """Its name server and its broker are both the scripted one."""
    client = RocketMQClient([server.address])
    client.routes.masters["broker"] = server.address
    yield client
    await client.close()


@pytest.mark.parametrize("call", MEMBERS.values(), ids=MEMBERS.keys())
async def test_a_body_without_sense_is_the_servers_fault(
    server: ScriptedServer, client: RocketMQClient, call: Callable[[RocketMQClient], Awaitable[Any]]
) -> None:
    """Or an empty one that means nothing: whoever catches RocketMQError catches it."""
    for body in MALFORMED_BODIES:
        server.reply = lambda request, body=body: answer_to(request, body=body)
        try:
            found = await call(client)
        except RemoteProtocolError:
            continue
        assert not found or not any(found[1:]), (body, found)


@pytest.mark.parametrize("call", FIELDS.values(), ids=FIELDS.keys())
async def test_fields_without_sense_are_the_servers_fault(
    server: ScriptedServer, client: RocketMQClient, call: Callable[[RocketMQClient], Awaitable[Any]]
) -> None:
    """A number that is none, or is missing where an answer without it means nothing."""
    fields = {"offset": "x", "queueOffset": "", "nextBeginOffset": "?"}
    server.reply = lambda request: answer_to(request, **fields)

    with pytest.raises(RemoteProtocolError):
        await call(client)


async def test_a_message_that_is_none_is_the_servers_fault(server: ScriptedServer, client: RocketMQClient) -> None:
    """The id names the server, so it is asked where it says."""
    host, port = server.address.split(":")
    place = bytes(map(int, host.split("."))).hex() + f"{int(port):08x}{0:016x}"
    for body in MALFORMED_BODIES:
        server.reply = lambda request, body=body: answer_to(request, body=body)
        with pytest.raises(RemoteProtocolError):
            await client.messages.view(place)


async def test_an_id_that_is_none_is_not_asked_for(client: RocketMQClient) -> None:
    """It names the server to ask: nobody is asked because of a typing error."""
    for wrong in ("", "00", "7F00000100002A9F", "z" * 32):
        with pytest.raises(ValueError, match=r"hexadecimal"):
            await client.messages.view(wrong)
