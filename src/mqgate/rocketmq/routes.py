"""Where topics live: routes from the name servers, and which address a broker's name stands for.

A route is remembered for half a minute and asked for again after any sign that it is wrong. Each question goes to the
name server that answered last; if that fails, to the next one.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from mqgate.rocketmq.errors import NoResponse, NotSent, RemoteProtocolError, RocketMQError, decoding_response
from mqgate.rocketmq.peers import Peers, expect
from mqgate.rocketmq.remoting import loose_json
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.transport import Probe

__all__ = ["Broker", "QueueSet", "Route", "Routes"]

_MASTER = "0"
_READ, _WRITE = 4, 2
_LIFETIME = 30.0
# While no name server answers.
_LIFETIME_ALONE = 5.0
_PROBE = Probe(RequestCode.GET_ROUTE, {"topic": "TBW102"})


class QueueSet(NamedTuple):
    """The queues that a broker has of a topic; those without permission count as none."""

    broker: str
    read: int
    write: int


class Route(NamedTuple):
    topic: str
    queues: tuple[QueueSet, ...]
    masters: Mapping[str, str]


class Broker(NamedTuple):
    """A broker as the name servers know it; `master` is None while it has none."""

    name: str
    cluster: str
    master: str | None


class Routes:
    def __init__(self, peers: Peers, name_servers: tuple[str, ...]) -> None:
        self._peers = peers
        self._servers = [peers.at(address, _PROBE) for address in name_servers]
        self._first = 0
        self._routes: dict[str, tuple[float, Route]] = {}
        self.masters: dict[str, str] = {}

    async def find(self, topic: str, *, is_fresh: bool = False) -> Route | None:
        """The route of a topic; None if the name server knows no such topic. While none answers, the last one told."""
        known = self._routes.get(topic)
        if known is not None and not is_fresh and time.monotonic() < known[0]:
            return known[1]
        try:
            response = await self.call(RequestCode.GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
        except (NotSent, NoResponse):
            if known is None or is_fresh:
                raise
            # Else everybody would wait for an answer every time.
            self._routes[topic] = time.monotonic() + _LIFETIME_ALONE, known[1]
            return known[1]
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.pop(topic, None)
            return None
        with decoding_response():
            route = _route(topic, _body(response))
        self._routes[topic] = time.monotonic() + _LIFETIME, route
        self.masters.update(route.masters)
        return route

    def invalidate(self, topic: str) -> None:
        """PullRange anew next time."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = 0.0, known[1]

    async def brokers(self) -> list[Broker]:
        """All brokers that are registered now."""
        document = _body(await self.call(RequestCode.GET_CLUSTER, {}))
        with decoding_response():
            table = document.get("brokerAddrTable") or {}
            found = [
                Broker(str(name), str(data.get("cluster", "")), (data.get("brokerAddrs") or {}).get(_MASTER))
                for name, data in sorted(table.items())
            ]
        self.masters.update({each.name: each.master for each in found if each.master is not None})
        return found

    async def call(self, code: int, fields: Mapping[str, str]) -> Command:
        """PullRange any name server that answers."""
        failure: RocketMQError = NotSent("no name server is configured")
        for turn in range(len(self._servers)):
            index = (self._first + turn) % len(self._servers)
            server = self._servers[index]
            try:
                response = await self._peers.call(server, code, fields)
            except (NotSent, NoResponse) as error:
                failure = error
                continue
            self._first = index
            return expect(response, server.address, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND)
        raise failure

    async def call_all(self, code: int, fields: Mapping[str, str]) -> None:
        """Tell every name server; they do not talk to each other. Raises if one cannot be told."""
        for server in self._servers:
            expect(await self._peers.call(server, code, fields), server.address, ResponseCode.TOPIC_NOT_EXIST)


def _body(response: Command) -> dict[str, Any]:
    document = loose_json.parse(response.body)
    if not isinstance(document, dict):
        raise RemoteProtocolError("a name server's answer is no object")
    return document


def _route(topic: str, document: dict[str, Any]) -> Route:
    masters = {
        str(data["brokerName"]): str(data["brokerAddrs"][_MASTER])
        for data in document.get("brokerDatas") or ()
        if _MASTER in (data.get("brokerAddrs") or {})
    }
    queues = tuple(
        QueueSet(
            data["brokerName"],
            data["readQueueNums"] if data["perm"] & _READ else 0,
            data["writeQueueNums"] if data["perm"] & _WRITE else 0,
        )
        for data in sorted(document.get("queueDatas") or (), key=lambda data: str(data["brokerName"]))
    )
    return Route(topic, queues, masters)
