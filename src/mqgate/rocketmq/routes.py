"""Routes of topics and addresses of brokers, from the name servers.

A route is cached for 30 seconds, and requested again after any sign that it is wrong. A request is sent to the name
server that responded last. If that fails, the next one is tried.
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
# While no name server responds.
_STALE_LIFETIME = 5.0
_PROBE = Probe(RequestCode.GET_ROUTE, {"topic": "TBW102"})


class QueueSet(NamedTuple):
    """The numbers of readable and writable queues of a topic on a broker; 0 without the permission."""

    broker: str
    read: int
    write: int


class Route(NamedTuple):
    topic: str
    queues: tuple[QueueSet, ...]
    masters: Mapping[str, str]


class Broker(NamedTuple):
    """A registered broker. `master` is its address, or None if it has none now."""

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
        """Return the route of a topic, or None if there is no such topic.

        While no name server responds, the cached route is returned, unless `is_fresh` is set.
        """
        known = self._routes.get(topic)
        if known is not None and not is_fresh and time.monotonic() < known[0]:
            return known[1]
        try:
            response = await self.call(RequestCode.GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
        except (NotSent, NoResponse):
            if known is None or is_fresh:
                raise
            # Otherwise every call would wait for a timeout.
            self._routes[topic] = time.monotonic() + _STALE_LIFETIME, known[1]
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
        """Request the route again on the next call."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = 0.0, known[1]

    async def brokers(self) -> list[Broker]:
        """Return all registered brokers."""
        document = _body(await self.call(RequestCode.GET_CLUSTER, {}))
        with decoding_response():
            table = document.get("brokerAddrTable") or {}
            found = [
                Broker(str(name), str(data.get("cluster", "")), (data.get("brokerAddrs") or {}).get(_MASTER))
                for name, data in sorted(table.items())
            ]
        self.masters.update({broker.name: broker.master for broker in found if broker.master is not None})
        return found

    async def call(self, code: int, fields: Mapping[str, str]) -> Command:
        """Send a request to the first name server that responds."""
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
        """Send a request to every name server, because they do not replicate. Raise if one of them fails."""
        for server in self._servers:
            expect(await self._peers.call(server, code, fields), server.address, ResponseCode.TOPIC_NOT_EXIST)


def _body(response: Command) -> dict[str, Any]:
    document = loose_json.parse(response.body)
    if not isinstance(document, dict):
        raise RemoteProtocolError("the response of a name server is not a JSON object")
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
