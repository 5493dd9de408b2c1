"""Free ports for servers that keep their port over a restart."""

import errno
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from mqgate.stack.errors import StackError

__all__ = ["free_port"]

# Below the ephemeral ports (Linux from 32768, macOS from 49152): while a server is stopped, an outgoing connection must
# not take its port.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def free_port(others: Sequence[int] = ()) -> int:
    """Return a port that is free on all interfaces, like the ports at the offsets `others` from it."""
    for _ in range(_TRIES):
        port = random.randrange(_FIRST, _LAST)  # noqa: S311 - only to avoid collisions
        if _are_free([port, *(port + other for other in others)]):
            return port
    raise StackError(f"no free port between {_FIRST} and {_LAST}")


def _are_free(ports: Sequence[int]) -> bool:
    with ExitStack() as held:
        for port in ports:
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                    return False
                raise
    return True
