"""Brokers by name: the address may change, the name does not."""

from collections.abc import Coroutine, Mapping
from typing import Any

from mqgate.rocketmq.errors import NotSent
from mqgate.rocketmq.peers import Peer, Peers
from mqgate.rocketmq.remoting.codes import RequestCode
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.routes import Routes
from mqgate.rocketmq.transport import Probe

__all__ = ["Brokers"]

# An unknown topic's end is 0: the cheapest question there is.
_PROBE = Probe(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})


class Brokers:
    """Calls to the master that a broker's name stands for."""

    def __init__(self, peers: Peers, routes: Routes) -> None:
        self._peers = peers
        self._routes = routes

    def peer(self, broker: str) -> Peer:
        """The master of a broker; NotSent if no route has named it yet."""
        address = self._routes.masters.get(broker)
        if address is None:
            raise NotSent(f"no name server knows a master of broker {broker}")
        return self._peers.at(address, _PROBE)

    def is_down(self, broker: str) -> bool:
        """Whether it cannot be reached, as far as we know."""
        address = self._routes.masters.get(broker)
        return address is None or (self._peers.known.get(address) or self._peers.at(address, _PROBE)).is_down

    def session(self, broker: str) -> tuple[str, int]:
        """Which connection answers for it: a broker that was started anew answers on another one."""
        peer = self.peer(broker)
        return peer.address, peer.sessions

    def call(
        self,
        broker: str,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        allowed: tuple[int, ...] = (),
        deadline: float | None = None,
    ) -> Coroutine[Any, Any, Command]:
        """One request; Refused unless it succeeded or answered one of the codes allowed."""
        peer = self._peers.known.get(self._routes.masters.get(broker, "")) or self.peer(broker)
        return self._peers.call(peer, code, fields, body, deadline, allowed)

    def call_address(self, address: str, code: int, fields: Mapping[str, str]) -> Coroutine[Any, Any, Command]:
        """The same to an address."""
        return self._peers.call(self._peers.at(address, _PROBE), code, fields, allowed=())
