"""Access to the dialect by network: its clients have no keys."""

from collections.abc import Sequence

from mqgate.control.access.service import Access
from mqgate.core.addresses import is_loopback
from mqgate.core.errors import Forbidden
from mqgate.http.exchange import Request
from mqgate.http.server.forwarded import Networks

__all__ = ["NetworkAllowList"]


class NetworkAllowList:
    """Decides by the client's address: loopback while there is no key, and the networks of `[mq] anonymous_from`."""

    def __init__(self, access: Access, networks: Sequence[str]) -> None:
        self._access = access
        self._networks = Networks(networks)

    def admit(self, request: Request) -> None:
        """Raise Forbidden for a client of another network."""
        address = request.address
        if address in self._networks or (self._access.is_for_all and is_loopback(address)):
            return
        raise Forbidden("no permission!")
