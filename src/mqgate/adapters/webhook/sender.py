"""ChannelSender for webhooks: one POST with a JSON body, signed by HMAC-SHA256.

The signature covers the time stamp and the body, so that a receiver can refuse old requests. Redirects are not
followed and proxies of the environment are not used: requests go to the configured URL only.
"""

import asyncio
import hashlib
import hmac
import importlib
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mqgate.core.alarms import Alarm, Channel, Notification
from mqgate.core.errors import InvalidValue
from mqgate.core.times import format_instant
from mqgate.ports.alarm_channels import ChannelFailed

__all__ = ["WebhookSender", "sign"]

_TIMEOUT = 8.0
_MIN_SECRET = 16


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header Mqgate-Signature."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={digest.hexdigest()}"


class WebhookSender:
    """Sender that opens one connection per notification.

    httpx2 is imported at the first use, because its import takes as long as that of the rest of the gateway.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall

    async def check(self, channel: Channel) -> None:
        if not await asyncio.to_thread(_is_http, channel.url):
            raise InvalidValue("url must be an http or https URL", field="url")
        if len(channel.secret) < _MIN_SECRET:
            raise InvalidValue(f"secret must have at least {_MIN_SECRET} characters", field="secret", limit=_MIN_SECRET)

    async def send(self, channel: Channel, notification: Notification) -> None:
        # The first import takes long, so it runs in a thread.
        await asyncio.to_thread(importlib.import_module, "httpx2")
        import httpx2  # noqa: PLC0415 - see above

        body = msgspec.json.encode(_body(notification))
        timestamp = str(int(self._wall()))
        headers = {
            "content-type": "application/json",
            "user-agent": "mqgate",
            "mqgate-notification-id": notification.id,
            "mqgate-timestamp": timestamp,
            "mqgate-signature": sign(channel.secret, timestamp, body),
        }
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False, follow_redirects=False) as client:
                response = await client.post(channel.url, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # The text of the error may contain the URL.
            raise ChannelFailed(type(error).__name__) from error
        if not response.is_success:
            raise ChannelFailed(f"HTTP status {response.status_code}")


def _is_http(text: str) -> bool:
    import httpx2  # noqa: PLC0415 - see above

    try:
        # httpx2 accepts more than it can connect to, and urlsplit does too; a URL has to satisfy both.
        url, parts = httpx2.URL(text), urlsplit(text)
        # Raises if it is out of range.
        _ = parts.port
    except (httpx2.InvalidURL, ValueError):
        return False
    return url.scheme in {"http", "https"} and bool(url.host) and url.host == parts.hostname


def _body(notification: Notification) -> dict[str, Any]:
    return {
        "id": notification.id,
        "at": format_instant(notification.at),
        "kind": notification.kind,
        "rule": notification.rule,
        "title": notification.title,
        "text": notification.text,
        "count": notification.count,
        "alarms": [_alarm(alarm) for alarm in notification.alarms],
    }


def _alarm(alarm: Alarm) -> dict[str, Any]:
    return {
        "id": alarm.id,
        "rule": alarm.rule,
        "subject": alarm.subject,
        "value": alarm.value,
        "threshold": alarm.threshold,
        "since": format_instant(alarm.since),
        "firedAt": None if alarm.fired_at is None else format_instant(alarm.fired_at),
        "resolvedAt": None if alarm.resolved_at is None else format_instant(alarm.resolved_at),
    }
