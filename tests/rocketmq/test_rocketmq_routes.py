"""Routes from name servers: which server is used, and how a response is decoded."""

from typing import Any

import pytest
from scripted_server import ManualClock, ScriptedServer, response_to

from mqgate.rocketmq.errors import NotSent, Refused, RemoteProtocolError
from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode
from mqgate.rocketmq.routes import Broker, QueueSet, Routes


def _broker(name: str, addresses: str = '{"0":"10.0.0.1:10911"}') -> str:
    return f'{{"brokerAddrs":{addresses},"brokerName":"{name}","cluster":"C","enableActingMaster":false}}'


def _queues(name: str, perm: int = 6, read: int = 8, write: int = 8) -> str:
    return f'{{"brokerName":"{name}","perm":{perm},"readQueueNums":{read},"topicSysFlag":0,"writeQueueNums":{write}}}'


def _route(brokers: list[str], queues: list[str]) -> bytes:
    listed = ",".join(brokers), ",".join(queues)
    return '{{"brokerDatas":[{}],"filterServerTable":{{}},"queueDatas":[{}]}}'.format(*listed).encode()


ROUTE = _route([_broker("a")], [_queues("a")])


def _answering(body: bytes = b"", code: int = 0) -> Any:
    return lambda request: response_to(request, code, body)


async def test_a_route_lists_the_queues(server: ScriptedServer, peers: Peers) -> None:
    """The request asks for strict JSON."""
    server.reply = _answering(_route([_broker("b"), _broker("a")], [_queues("b", read=4, write=2), _queues("a")]))
    routes = Routes(peers, (server.address,))

    route = await routes.find("orders")

    assert route is not None
    assert route.queues == (QueueSet("a", 8, 8), QueueSet("b", 4, 2))
    assert route.masters == routes.masters == {"a": "10.0.0.1:10911", "b": "10.0.0.1:10911"}
    [(_, request)] = server.requests
    assert (request.code, request.fields) == (105, {"topic": "orders", "acceptStandardJsonOnly": "true"})


async def test_a_route_is_cached_until_it_is_invalidated(server: ScriptedServer, peers: Peers) -> None:
    """One request per message would be half of the traffic."""
    server.reply = _answering(ROUTE)
    routes = Routes(peers, (server.address,))

    assert await routes.find("orders") == await routes.find("orders")
    assert len(server.requests) == 1
    routes.invalidate("orders")
    await routes.find("orders")
    assert len(server.requests) == 2
    await routes.find("orders", is_fresh=True)
    assert len(server.requests) == 3


async def test_an_unknown_topic_has_no_route(server: ScriptedServer, peers: Peers) -> None:
    """This is not cached: the topic may be created at any time."""
    server.reply = _answering(code=ResponseCode.TOPIC_NOT_EXIST)
    routes = Routes(peers, (server.address,))

    assert await routes.find("orders") is None
    server.reply = _answering(ROUTE)
    assert await routes.find("orders") is not None


async def test_numbers_as_keys_are_decoded(server: ScriptedServer, peers: Peers) -> None:
    """Old name servers send them even if strict JSON is requested."""
    server.reply = _answering(_route([_broker("a", '{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}')], [_queues("a")]))
    routes = Routes(peers, (server.address,))

    route = await routes.find("orders")

    assert route is not None
    assert route.masters == {"a": "10.0.0.1:10911"}


async def test_a_broker_without_a_master_has_no_address(server: ScriptedServer, peers: Peers) -> None:
    """Messages must not be sent to its slave."""
    server.reply = _answering(
        _route([_broker("a", '{"1":"10.0.0.2:10911"}'), _broker("b")], [_queues("a"), _queues("b")])
    )
    routes = Routes(peers, (server.address,))

    route = await routes.find("orders")

    assert route is not None
    assert route.masters == {"b": "10.0.0.1:10911"}
    assert "a" not in routes.masters


@pytest.mark.parametrize(("perm", "read", "write"), [(6, 8, 4), (4, 8, 0), (2, 0, 4), (0, 0, 0), (7, 8, 4)])
async def test_permissions_are_honoured(server: ScriptedServer, peers: Peers, perm: int, read: int, write: int) -> None:
    """Brokers do not enforce them on writes, so clients must."""
    server.reply = _answering(_route([_broker("a")], [_queues("a", perm, 8, 4)]))

    route = await Routes(peers, (server.address,)).find("orders")

    assert route is not None
    assert route.queues == (QueueSet("a", read, write),)


async def test_another_name_server_is_used_when_one_is_down(
    server: ScriptedServer, other: ScriptedServer, peers: Peers
) -> None:
    """It is used first from then on, because it has responded."""
    address = server.address
    await server.stop()
    other.reply = _answering(ROUTE)
    routes = Routes(peers, (address, other.address))

    assert await routes.find("orders") is not None
    await server.start()
    server.reply = _answering(ROUTE)
    assert await routes.find("payments") is not None

    assert not server.requests
    assert len(other.requests) == 2


async def test_the_first_name_server_is_used_when_the_current_one_fails(
    server: ScriptedServer, other: ScriptedServer, peers: Peers, manual_clock: ManualClock
) -> None:
    """The servers are tried in rotation, so that one live server is enough."""
    other.reply = server.reply = _answering(ROUTE)
    routes = Routes(peers, (server.address, other.address))
    await routes.find("orders")
    await server.stop()
    await routes.find("payments")
    await server.start()
    await other.stop()
    manual_clock.now += 1.0

    assert await routes.find("refunds") is not None


async def test_an_error_reports_that_no_name_server_responds(server: ScriptedServer, peers: Peers) -> None:
    """NotSent reports that nothing was executed."""
    address = server.address
    await server.stop()

    with pytest.raises(NotSent, match=address):
        await Routes(peers, (address,)).find("orders")
    with pytest.raises(NotSent, match="configured"):
        await Routes(peers, ()).find("orders")


async def test_a_refusal_is_raised(server: ScriptedServer, peers: Peers) -> None:
    """A name server that has just started may refuse. This must not look like an unknown topic."""
    server.reply = _answering(code=ResponseCode.SYSTEM_ERROR)

    with pytest.raises(Refused) as refused:
        await Routes(peers, (server.address,)).find("orders")

    assert refused.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'"x"'])
async def test_a_malformed_route_raises_a_protocol_error(server: ScriptedServer, peers: Peers, body: bytes) -> None:
    """Another program may listen on the port."""
    server.reply = _answering(body)

    with pytest.raises(RemoteProtocolError):
        await Routes(peers, (server.address,)).find("orders")


async def test_all_brokers_are_listed(server: ScriptedServer, peers: Peers) -> None:
    """The keys are numbers, as name servers always send them in this response."""
    table = '{{"brokerAddrTable":{{"b":{},"a":{}}},"clusterAddrTable":{{"C":["a","b"]}}}}'
    server.reply = _answering(table.format(_broker("b", '{1:"x:1"}'), _broker("a", '{0:"y:2"}')).encode())
    routes = Routes(peers, (server.address,))

    assert await routes.brokers() == [Broker("a", "C", "y:2"), Broker("b", "C", None)]
    assert routes.masters == {"a": "y:2"}


async def test_call_all_sends_a_request_to_every_name_server(
    server: ScriptedServer, other: ScriptedServer, peers: Peers
) -> None:
    """Name servers do not replicate."""
    server.reply = other.reply = response_to
    routes = Routes(peers, (server.address, other.address))

    await routes.call_all(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, {"topic": "orders"})

    requests = [request for _, request in server.requests + other.requests]
    assert [(request.code, dict(request.fields)) for request in requests] == [(216, {"topic": "orders"})] * 2
