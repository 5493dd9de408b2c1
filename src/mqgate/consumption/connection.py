"""The connection of a client, as far as a receive needs it."""

from typing import Protocol

__all__ = ["ClientDisconnected", "Connection"]


class Connection(Protocol):
    """The connection that a response will be sent on."""

    def is_disconnected(self) -> bool:
        """Return whether the client is known to have disconnected, without waiting."""

    async def wait_disconnect(self) -> None:
        """Return when the client has disconnected."""


class ClientDisconnected(Exception):
    """The client disconnected. Its leases were released."""
