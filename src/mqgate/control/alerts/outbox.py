"""Deliveries of notifications to channels, with retries.

A delivery that fails is retried after a growing pause, for a day. After a failure the other deliveries of the channel
wait for the next run, so that a channel that is down costs one attempt per run. Each channel has a limit of waiting
deliveries; the oldest ones are given up first.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from mqgate.core.alarms import Channel, ChannelKind, Delivery, DeliveryState, Notification
from mqgate.ports.alarm_channels import ChannelFailed, ChannelSender
from mqgate.telemetry.metrics import Metrics

__all__ = ["MAX_PENDING", "Outbox", "pause_after"]

MAX_PENDING = 200
_MAX_AGE = timedelta(days=1)
_MIN_PAUSE, _MAX_PAUSE = timedelta(seconds=15), timedelta(minutes=10)
# Deliveries of a channel in one run, so that a slow channel does not delay the next evaluation for long.
_BATCH = 5
_TIMEOUT = 10.0
_log = structlog.get_logger()


def pause_after(attempts: int) -> timedelta:
    """Return the time until the next attempt after this many failed ones."""
    doublings = min(attempts - 1, 16)
    return min(_MIN_PAUSE * (1 << doublings), _MAX_PAUSE)


class Outbox:
    """The pending deliveries of the evaluator. The store has a copy for the next evaluator."""

    def __init__(self, senders: Mapping[ChannelKind, ChannelSender], metrics: Metrics) -> None:
        self._senders = senders
        self._metrics = metrics
        self._pending: list[Delivery] = []
        # Channels with a metric.
        self._shown: set[str] = set()

    def load(self, deliveries: Sequence[Delivery]) -> None:
        """Replace the pending deliveries by those of the store."""
        self._pending = list(deliveries)
        self._shown.clear()

    def add(self, notifications: Sequence[Notification], channels: Mapping[str, Channel]) -> list[Delivery]:
        """Add a delivery of each notification to each enabled channel. Return new and given-up deliveries."""
        enabled = [channel.name for channel in channels.values() if channel.is_enabled]
        added = [
            Delivery(notification=notification, channel=name, due=notification.at)
            for notification in notifications
            for name in enabled
        ]
        self._pending += added
        excess = [item for name in enabled for item in self._of(name)[:-MAX_PENDING]]
        return [*(item for item in added if item not in excess), *(self._give_up(item, "too many") for item in excess)]

    def _of(self, channel: str) -> list[Delivery]:
        return [item for item in self._pending if item.channel == channel]

    async def run_once(self, channels: Mapping[str, Channel], now: datetime) -> list[Delivery]:
        """Attempt the due deliveries, channels in parallel. Return the changed deliveries."""
        for name in self._shown - channels.keys():
            self._metrics.channel_up.remove(name)
        self._shown &= channels.keys()
        names = dict.fromkeys(item.channel for item in self._pending)
        results = await asyncio.gather(*(self._run_channel(channels.get(name), name, now) for name in names))
        return [item for changed in results for item in changed]

    async def _run_channel(self, channel: Channel | None, name: str, now: datetime) -> list[Delivery]:
        if channel is None:
            return [self._give_up(item, "channel deleted") for item in self._of(name)]
        due = sorted((item for item in self._of(name) if item.due <= now), key=lambda item: item.due)
        changed: list[Delivery] = []
        for item in due[:_BATCH] if channel.is_enabled else ():
            after = await self._attempt(channel, item, now)
            changed.append(after)
            if after.state is not DeliveryState.SENT:
                break
        return changed

    async def _attempt(self, channel: Channel, item: Delivery, now: datetime) -> Delivery:
        error = await self._send(channel, item.notification)
        is_sent = error is None
        self._metrics.notifications.labels(channel.name, "sent" if is_sent else "failed").inc()
        self._metrics.channel_up.labels(channel.name).set(is_sent)
        self._shown.add(channel.name)
        attempts = item.attempts + 1
        if is_sent:
            self._pending.remove(item)
            return replace(item, state=DeliveryState.SENT, attempts=attempts, due=now, error=None)
        _log.warning("notification not sent", channel=channel.name, notification=item.notification.id, error=error)
        if now - item.notification.at >= _MAX_AGE:
            return self._give_up(item, error)
        after = replace(item, attempts=attempts, due=now + pause_after(attempts), error=error)
        self._pending[self._pending.index(item)] = after
        return after

    async def _send(self, channel: Channel, notification: Notification) -> str | None:
        """Send, and return the error or None."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._senders[channel.kind].send(channel, notification)
        except ChannelFailed as failed:
            return str(failed)
        except TimeoutError:
            return f"no response within {_TIMEOUT:g} s"
        return None

    def _give_up(self, item: Delivery, error: str | None) -> Delivery:
        self._pending.remove(item)
        self._metrics.notifications.labels(item.channel, "given_up").inc()
        return replace(item, state=DeliveryState.FAILED, error=error)
