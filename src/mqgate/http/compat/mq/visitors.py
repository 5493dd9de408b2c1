"""Who may use the dialect at all: its clients know no keys, so their network speaks for them."""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network

from mqgate.control.access.service import Access
from mqgate.http.compat.mq.envelope import FAILED, Refusal


class Visitors:
    def __init__(self, access: Access, networks: Sequence[str]) -> None:
        self._access = access
        self._networks = [ip_network(network) for network in networks]

    def admit(self, address: str) -> None:
        """Let a peer in by the address of its socket; a header such as X-Forwarded-For anybody can write."""
        if self._access.is_open or self._is_known(address):
            return
        raise Refusal(FAILED, "no permission!")

    def _is_known(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # A socket that listens on both families shows an IPv4 peer as ::ffff:a.b.c.d.
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)
