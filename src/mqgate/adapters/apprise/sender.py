"""ChannelSender for apprise URLs: Slack, DingTalk, Feishu, WeCom, e-mail and more."""

import asyncio

from mqgate.core.alarms import Channel, Notification, NotificationKind
from mqgate.core.errors import InvalidValue
from mqgate.ports.alarm_channels import ChannelFailed

__all__ = ["AppriseSender"]


class AppriseSender:
    """Sender that runs apprise, which blocks, in a thread.

    Apprise is imported at the first use: it is an extra, and its import takes half a second.
    """

    def check(self, channel: Channel) -> None:
        import apprise  # noqa: PLC0415 - see above

        if not apprise.Apprise().add(channel.url):
            raise InvalidValue(
                "url must be a URL that apprise supports, such as slack://... or mailto://...", field="url"
            )
        if channel.secret:
            raise InvalidValue("secret applies to webhooks only. Remove it.", field="secret")

    async def send(self, channel: Channel, notification: Notification) -> None:
        is_sent = await asyncio.to_thread(_notify, channel.url, notification)
        if not is_sent:
            # Apprise logs the reason, but returns only whether all receivers accepted.
            raise ChannelFailed("apprise could not send the notification")


def _notify(url: str, notification: Notification) -> bool:
    import apprise  # noqa: PLC0415 - see above

    is_firing = notification.kind is NotificationKind.FIRING
    service = apprise.Apprise()
    service.add(url)
    return bool(
        service.notify(
            title=notification.title,
            body=notification.text,
            notify_type=apprise.NotifyType.WARNING if is_firing else apprise.NotifyType.SUCCESS,
            body_format=apprise.NotifyFormat.TEXT,
        )
    )
