"""IP addresses and loopback host names."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["is_loopback", "parse_address"]


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, or None. An IPv4 address that is mapped into IPv6 is returned as IPv4."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


@lru_cache(maxsize=4096)
def is_loopback(host: str) -> bool:
    """Return whether an address or host name is one of this machine's loopback names."""
    found = parse_address(host)
    return host == "localhost" if found is None else found.is_loopback
