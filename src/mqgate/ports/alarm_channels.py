"""Senders of notifications: one per kind of channel."""

from typing import Protocol

from mqgate.core.alarms import Channel, Notification

__all__ = ["ChannelFailed", "ChannelSender"]


class ChannelFailed(Exception):
    """A notification that a channel did not accept. The text contains neither the URL nor a secret."""


class ChannelSender(Protocol):
    """A sender for one kind of channel."""

    async def check(self, channel: Channel) -> None:
        """Raise InvalidValue if the channel cannot be used. Sends nothing."""

    async def send(self, channel: Channel, notification: Notification) -> None:
        """Send a notification. Raises ChannelFailed if it was not accepted, or if that is unknown."""
