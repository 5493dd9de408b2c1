"""The addresses on which a process listens, from /proc."""

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

__all__ = ["listening_addresses"]

_LISTEN = "0A"


def listening_addresses(pid: int) -> set[IPv4Address | IPv6Address]:
    """Return the addresses of all TCP sockets on which the process listens."""
    sockets = _socket_inodes(pid)
    found: set[IPv4Address | IPv6Address] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTEN and inode in sockets:
                found.add(_address(local.partition(":")[0]))
    return found


def _socket_inodes(pid: int) -> set[str]:
    targets = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # The process may close a file meanwhile.
        with suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return {name.removeprefix("socket:[").removesuffix("]") for name in targets if name.startswith("socket:[")}


def _address(words: str) -> IPv4Address | IPv6Address:
    """Parse an address that the kernel prints as 32-bit words, each in the byte order of this machine."""
    packed = b"".join(bytes.fromhex(words[start : start + 8])[::-1] for start in range(0, len(words), 8))
    if len(packed) == 4:
        return IPv4Address(packed)
    address = IPv6Address(packed)
    return address.ipv4_mapped or address
