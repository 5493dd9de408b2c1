"""Calls to brokers by name. The address of a broker may change, its name does not."""

from collections.abc import Coroutine, Mapping
from typing import Any

from mqgate.rocketmq.errors import NotSent
from mqgate.rocketmq.peers import Peer, Peers
from mqgate.rocketmq.remoting.codes import RequestCode
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.routes import Routes
from mqgate.rocketmq.transport import Probe

__all__ = ["Brokers"]

# The cheapest request: the max offset of an unknown topic is 0.
_PROBE = Probe(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})


class Brokers:
    """Calls to the masters of brokers."""

    def __init__(self, peers: Peers, routes: Routes) -> None:
        self._peers = peers
        self._routes = routes

    def peer(self, broker: str) -> Peer:
        """Return the master of a broker. Raise NotSent if no route has listed it yet."""
        address = self._routes.masters.get(broker)
        if address is None:
            raise NotSent(f"no name server has listed a master of broker {broker}")
        return self._peers.at(address, _PROBE)

    def is_down(self, broker: str) -> bool:
        """Return whether the broker could not be reached last time."""
        address = self._routes.masters.get(broker)
        return address is None or (self._peers.known.get(address) or self._peers.at(address, _PROBE)).is_down

    def session(self, broker: str) -> tuple[str, int]:
        """Identify the connection to a broker. A restarted broker has another one."""
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
        """Send one request. Raise Refused unless the response code is SUCCESS or one of `allowed`."""
        peer = self._peers.known.get(self._routes.masters.get(broker, "")) or self.peer(broker)
        return self._peers.call(peer, code, fields, body, deadline, allowed)

    def send(
        self, broker: str, head: bytes, body: bytes, *, allowed: tuple[int, ...], deadline: float | None
    ) -> Coroutine[Any, Any, Command] | None:
        """Send one request whose head is prepared. Return None if requests are signed: then `call` has to send it."""
        peers = self._peers
        if peers.is_signing:
            return None
        peer = peers.known.get(self._routes.masters.get(broker, "")) or self.peer(broker)
        return peer.send(head, body, peers.deadline if deadline is None else deadline, allowed)

    def call_address(self, address: str, code: int, fields: Mapping[str, str]) -> Coroutine[Any, Any, Command]:
        """Send one request to an address instead of a named broker."""
        return self._peers.call(self._peers.at(address, _PROBE), code, fields, allowed=())
