"""Client address and scheme behind proxies: only headers that a trusted proxy added are believed."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from mqgate.core.addresses import parse_address

__all__ = ["Networks"]


class Networks:
    """A list of IP networks, such as `[http] trusted_proxies`."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks: Sequence[IPv4Network | IPv6Network] = [ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        found = parse_address(address)
        return found is not None and any(found in network for network in self._networks)

    def forwarded(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, str | None]:
        """Return the client's address and scheme as reported by a peer that is one of these proxies.

        X-Forwarded-For is read from the right. The first address that is not a trusted proxy is the client; everything
        to the left of it was sent by that client and proves nothing. A malformed entry ends the search.
        """
        hops: list[str] = []
        scheme = None
        for name, value in headers:
            if name == b"x-forwarded-for":
                hops += value.decode("latin-1").split(",")
            elif name == b"x-forwarded-proto":
                last = value.decode("latin-1").rpartition(",")[2].strip().lower()
                scheme = last if last in {"http", "https"} else scheme
        address = peer
        for hop in reversed(hops):
            found = parse_address(_without_port(hop.strip()))
            if found is None:
                break
            address = str(found)
            if address not in self:
                break
        return address, scheme


def _without_port(hop: str) -> str:
    """Remove the port of `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
