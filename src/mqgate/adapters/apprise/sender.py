"""ChannelSender for apprise URLs: Slack, DingTalk, Feishu, WeCom, e-mail and more."""

import asyncio
import logging
from typing import TYPE_CHECKING

from mqgate.core.alarms import Channel, Notification, NotificationKind
from mqgate.core.errors import InvalidValue
from mqgate.ports.alarm_channels import ChannelFailed

if TYPE_CHECKING:
    import apprise

__all__ = ["AppriseSender"]


class AppriseSender:
    """Sender that runs apprise, which blocks, in a thread."""

    async def check(self, channel: Channel) -> None:
        # In a thread, because the import of apprise takes long.
        if not await asyncio.to_thread(lambda: _service().add(channel.url)):
            raise InvalidValue(
                "url must be a URL that apprise supports, such as slack://... or mailto://...", field="url"
            )
        if channel.secret:
            raise InvalidValue("secret applies to webhooks only. Remove it.", field="secret")

    async def send(self, channel: Channel, notification: Notification) -> None:
        try:
            is_sent = await asyncio.to_thread(_notify, channel.url, notification)
        except Exception as error:  # noqa: BLE001 - see below
            # A plugin may raise anything, with the URL in its text.
            raise ChannelFailed(f"apprise failed: {type(error).__name__}") from None
        if not is_sent:
            # Apprise returns only whether all receivers accepted.
            raise ChannelFailed("apprise could not send the notification")


def _service() -> "apprise.Apprise":
    """Return a new service. Apprise is imported at the first use: it is an extra, and takes half a second."""
    import apprise  # noqa: PLC0415 - see above

    # It logs URLs that it cannot parse, and they may contain tokens.
    logging.getLogger("apprise").disabled = True
    return apprise.Apprise()


def _notify(url: str, notification: Notification) -> bool:
    import apprise  # noqa: PLC0415 - see above

    is_firing = notification.kind is NotificationKind.FIRING
    service = _service()
    service.add(url)
    return bool(
        service.notify(
            title=notification.title,
            body=notification.text,
            notify_type=apprise.NotifyType.WARNING if is_firing else apprise.NotifyType.SUCCESS,
            body_format=apprise.NotifyFormat.TEXT,
        )
    )
