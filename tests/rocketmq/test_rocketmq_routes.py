"""Routes from name servers: which one is asked, and what an answer means."""

from typing import Any

import pytest
from scripted_server import HandClock, ScriptedServer, answer_to

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
    return lambda request: answer_to(request, code, body)


async def test_a_route_says_where_queues_are(server: ScriptedServer, peers: Peers) -> None:
    """Producers and consumers go by it; what is asked is what makes servers answer in strict JSON."""
    server.reply = _answering(_route([_broker("b"), _broker("a")], [_queues("b", read=4, write=2), _queues("a")]))
    routes = Routes(peers, (server.address,))

    route = await routes.find("orders")

    assert route is not None
    assert route.queues == (QueueSet("a", 8, 8), QueueSet("b", 4, 2))
    assert route.masters == routes.masters == {"a": "10.0.0.1:10911", "b": "10.0.0.1:10911"}
    [(_, asked)] = server.requests
    assert (asked.code, asked.fields) == (105, {"topic": "orders", "acceptStandardJsonOnly": "true"})


async def test_a_route_is_remembered_until_it_is_doubted(server: ScriptedServer, peers: Peers) -> None:
    """A question per message would be half of the traffic."""
    server.reply = _answering(ROUTE)
    routes = Routes(peers, (server.address,))

    assert await routes.find("orders") == await routes.find("orders")
    assert len(server.requests) == 1
    routes.invalidate("orders")
    await routes.find("orders")
    assert len(server.requests) == 2
    await routes.find("orders", is_fresh=True)
    assert len(server.requests) == 3


async def test_a_topic_that_nobody_knows_has_no_route(server: ScriptedServer, peers: Peers) -> None:
    """That is an answer, and may change with the next question."""
    server.reply = _answering(code=ResponseCode.TOPIC_NOT_EXIST)
    routes = Routes(peers, (server.address,))

    assert await routes.find("orders") is None
    server.reply = _answering(ROUTE)
    assert await routes.find("orders") is not None


async def test_bare_numbers_as_keys_are_understood(server: ScriptedServer, peers: Peers) -> None:
    """Old name servers write them, whatever they are asked for."""
    server.reply = _answering(_route([_broker("a", '{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}')], [_queues("a")]))
    routes = Routes(peers, (server.address,))

    route = await routes.find("orders")

    assert route is not None
    assert route.masters == {"a": "10.0.0.1:10911"}


async def test_a_broker_without_a_master_has_no_address(server: ScriptedServer, peers: Peers) -> None:
    """Its slave must not be written to."""
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
    """Brokers do not enforce them on writes; clients must."""
    server.reply = _answering(_route([_broker("a")], [_queues("a", perm, 8, 4)]))

    route = await Routes(peers, (server.address,)).find("orders")

    assert route is not None
    assert route.queues == (QueueSet("a", read, write),)


async def test_another_name_server_answers_when_one_is_away(
    server: ScriptedServer, other: ScriptedServer, peers: Peers
) -> None:
    """And it is asked first from then on: an answer shows that it lives."""
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


async def test_the_first_name_server_answers_when_the_remembered_one_goes(
    server: ScriptedServer, other: ScriptedServer, peers: Peers, hand_clock: HandClock
) -> None:
    """The turn goes round, so that one of them answers as long as one of them lives."""
    other.reply = server.reply = _answering(ROUTE)
    routes = Routes(peers, (server.address, other.address))
    await routes.find("orders")
    await server.stop()
    await routes.find("payments")
    await server.start()
    await other.stop()
    hand_clock.now += 1.0

    assert await routes.find("refunds") is not None


async def test_no_name_server_is_an_error_that_says_so(server: ScriptedServer, peers: Peers) -> None:
    """Nothing was done, so anything may be tried."""
    address = server.address
    await server.stop()

    with pytest.raises(NotSent, match=address):
        await Routes(peers, (address,)).find("orders")
    with pytest.raises(NotSent, match="configured"):
        await Routes(peers, ()).find("orders")


async def test_a_refusal_is_told(server: ScriptedServer, peers: Peers) -> None:
    """A name server that has just started may not be ready; that is not an unknown topic."""
    server.reply = _answering(code=ResponseCode.SYSTEM_ERROR)

    with pytest.raises(Refused) as refused:
        await Routes(peers, (server.address,)).find("orders")

    assert refused.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'"x"'])
async def test_an_answer_that_is_no_route_is_the_peers_fault(server: ScriptedServer, peers: Peers, body: bytes) -> None:
    """Something else may listen at that port."""
    server.reply = _answering(body)

    with pytest.raises(RemoteProtocolError):
        await Routes(peers, (server.address,)).find("orders")


async def test_all_brokers_are_listed(server: ScriptedServer, peers: Peers) -> None:
    """With bare numbers as keys, as name servers always write this one."""
    table = '{{"brokerAddrTable":{{"b":{},"a":{}}},"clusterAddrTable":{{"C":["a","b"]}}}}'
    server.reply = _answering(table.format(_broker("b", '{1:"x:1"}'), _broker("a", '{0:"y:2"}')).encode())
    routes = Routes(peers, (server.address,))

    assert await routes.brokers() == [Broker("a", "C", "y:2"), Broker("b", "C", None)]
    assert routes.masters == {"a": "y:2"}


async def test_what_concerns_all_name_servers_is_told_to_each(
    server: ScriptedServer, other: ScriptedServer, peers: Peers
) -> None:
    """They do not talk to each other."""
    server.reply = other.reply = answer_to
    routes = Routes(peers, (server.address, other.address))

    await routes.call_all(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, {"topic": "orders"})

    told = [request for _, request in server.requests + other.requests]
    assert [(request.code, dict(request.fields)) for request in told] == [(216, {"topic": "orders"})] * 2
