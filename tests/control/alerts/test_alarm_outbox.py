"""Deliveries: a channel that is down is retried after growing pauses, and bounded."""

from datetime import timedelta

from mqgate.control.alerts.outbox import MAX_PENDING, Outbox, pause_after
from mqgate.core.alarms import (
    Channel,
    ChannelKind,
    Delivery,
    DeliveryState,
    Notification,
    NotificationKind,
    RuleName,
)
from mqgate.ports.alarm_channels import ChannelFailed
from mqgate.telemetry.metrics import Metrics
from mqgate.testing.clock import NOON

OPS = {"ops": Channel(name="ops", kind=ChannelKind.WEBHOOK, url="http://ops.example")}


class Sender:
    """A receiver outside the gateway that can be down."""

    def __init__(self) -> None:
        self.is_down = False
        self.attempts = 0
        self.sent: list[str] = []

    def check(self, channel: Channel) -> None:
        """Accept any channel."""

    async def send(self, channel: Channel, notification: Notification) -> None:
        self.attempts += 1
        if self.is_down:
            raise ChannelFailed("HTTP status 503")
        self.sent.append(f"{channel.name} {notification.id}")


def notification(number: int = 1) -> Notification:
    return Notification(
        id=f"n{number}",
        at=NOON,
        kind=NotificationKind.FIRING,
        rule=RuleName.BACKLOG_COUNT,
        title="t",
        text="t",
        count=1,
        alarms=(),
    )


def outbox() -> tuple[Outbox, Sender, Metrics]:
    sender, metrics = Sender(), Metrics()
    return Outbox({ChannelKind.WEBHOOK: sender}, metrics), sender, metrics


async def test_every_enabled_channel_gets_the_notification() -> None:
    """And each of them once."""
    box, sender, _ = outbox()
    chat = Channel(name="chat", kind=ChannelKind.WEBHOOK, url="http://chat.example")
    off = Channel(name="off", kind=ChannelKind.WEBHOOK, url="http://off.example", is_enabled=False)
    channels = {**OPS, "chat": chat, "off": off}
    box.add([notification()], channels)

    changed = await box.run_once(channels, NOON)
    again = await box.run_once(channels, NOON)

    assert sorted(sender.sent) == ["chat n1", "ops n1"]
    assert [item.state for item in changed] == [DeliveryState.SENT] * 2
    assert again == []


async def test_a_channel_that_is_down_is_retried_after_growing_pauses() -> None:
    """A receiver that restarts is not flooded, and gets the notification afterwards."""
    box, sender, metrics = outbox()
    sender.is_down = True
    box.add([notification()], OPS)
    attempts = []
    for second in range(0, 120, 5):
        before = sender.attempts
        await box.run_once(OPS, NOON + timedelta(seconds=second))
        attempts += [second] if sender.attempts > before else []
    sender.is_down = False

    (sent,) = await box.run_once(OPS, NOON + timedelta(minutes=10))

    assert attempts == [0, 15, 45, 105]
    assert (sent.state, sent.attempts, sent.error) == (DeliveryState.SENT, 5, None)
    text = metrics.render().decode()
    assert 'mqgate_notifications_total{channel="ops",outcome="failed"} 4.0' in text
    assert 'mqgate_alarm_channel_up{channel="ops"} 1.0' in text


async def test_a_channel_that_is_down_costs_one_attempt_per_run() -> None:
    """Its other notifications wait, and other channels are not delayed by them."""
    box, sender, _ = outbox()
    sender.is_down = True
    box.add([notification(number) for number in range(5)], OPS)

    await box.run_once(OPS, NOON)

    assert sender.attempts == 1


async def test_a_refused_notification_does_not_block_the_next_ones() -> None:
    """A receiver may refuse one of them forever."""
    box, sender, _ = outbox()
    sender.is_down = True
    box.add([notification(1), notification(2)], OPS)
    await box.run_once(OPS, NOON)
    sender.is_down = False

    await box.run_once(OPS, NOON + timedelta(seconds=1))

    assert sender.sent == ["ops n2"]


async def test_a_notification_is_given_up_after_a_day() -> None:
    """An old alarm helps nobody, and what waits is bounded."""
    box, sender, _ = outbox()
    sender.is_down = True
    box.add([notification()], OPS)

    (given_up,) = await box.run_once(OPS, NOON + timedelta(days=1))

    assert (given_up.state, given_up.error) == (DeliveryState.FAILED, "HTTP status 503")
    assert await box.run_once(OPS, NOON + timedelta(days=2)) == []


async def test_the_oldest_notifications_are_given_up_above_the_limit() -> None:
    """Memory and store must not grow with the length of an outage."""
    box, _, _ = outbox()

    changed = box.add([notification(number) for number in range(MAX_PENDING + 3)], OPS)

    given_up = [item.notification.id for item in changed if item.state is DeliveryState.FAILED]
    assert given_up == ["n0", "n1", "n2"]
    assert len(changed) == MAX_PENDING + 3


async def test_deliveries_of_a_deleted_channel_are_given_up() -> None:
    """There is nobody to send them to."""
    box, sender, _ = outbox()
    box.load([Delivery(notification=notification(), channel="gone", due=NOON)])

    (given_up,) = await box.run_once(OPS, NOON)

    assert (given_up.state, given_up.error, sender.sent) == (DeliveryState.FAILED, "channel deleted", [])


async def test_a_deleted_channel_has_no_metric() -> None:
    """Its last state would otherwise stay on dashboards."""
    box, _, metrics = outbox()
    box.add([notification()], OPS)
    await box.run_once(OPS, NOON)
    before = metrics.render().decode()

    await box.run_once({}, NOON)

    assert 'mqgate_alarm_channel_up{channel="ops"}' in before
    assert 'mqgate_alarm_channel_up{channel="ops"}' not in metrics.render().decode()


def test_pauses_grow_to_ten_minutes() -> None:
    """A channel that is back is used again within that time."""
    assert [pause_after(attempts).total_seconds() for attempts in (1, 2, 3, 100_000)] == [15, 30, 60, 600]
