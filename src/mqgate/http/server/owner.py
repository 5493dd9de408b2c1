"""What a connection needs of the server that accepted it, and the terms that both use."""

import asyncio
import enum
from typing import TYPE_CHECKING, Protocol

from mqgate.http.server.exchange import AsgiApp
from mqgate.http.server.forwarded import Networks
from mqgate.settings import HttpSettings

if TYPE_CHECKING:
    from mqgate.http.server.connection import Connection

__all__ = ["Eviction", "Owner", "Phase"]


class Phase(enum.Enum):
    HEAD = enum.auto()
    BODY = enum.auto()
    BUSY = enum.auto()
    LINGER = enum.auto()
    CLOSING = enum.auto()


class Eviction(enum.IntEnum):
    """Why a connection can be closed to make room for another one; the first kind goes first."""

    NEW = enum.auto()
    IDLE = enum.auto()
    STALLED = enum.auto()


class Owner(Protocol):
    """What a connection needs of the server that accepted it."""

    app: AsgiApp
    settings: HttpSettings
    trusted_proxies: Networks
    date_line: bytes
    max_header_bytes: int
    is_stopping: bool
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]

    def admit(self, connection: "Connection") -> bool:
        """Count a new connection; False if a limit is reached."""

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that has ended."""

    def set_eviction(self, connection: "Connection", eviction: Eviction | None) -> None:
        """Note whether a connection can be closed to make room for another one."""

    def count_closed(self, reason: str) -> None:
        """Count a connection that the server closed, by reason."""
