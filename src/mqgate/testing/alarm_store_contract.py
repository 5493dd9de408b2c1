"""The contract of stores of alarms and of the evaluator's lease."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.core.alarms import (
    Alarm,
    AlarmState,
    Delivery,
    DeliveryState,
    Notification,
    NotificationKind,
    RuleName,
)
from mqgate.core.errors import InvalidValue
from mqgate.ports.alarm_store import AlarmChanges, AlarmStore
from mqgate.testing.clock import NOON, ManualClock

__all__ = ["AlarmStoreContract"]

Reopen = Callable[[], Awaitable[AlarmStore]]
TTL = timedelta(seconds=15)


def alarm(number: int = 1, *, state: AlarmState = AlarmState.FIRING, is_open: bool = True) -> Alarm:
    return Alarm(
        id=f"alarm-{number}",
        rule=RuleName.BACKLOG_COUNT,
        subject=f"group-{number}",
        state=state,
        value=12.5,
        threshold=10,
        since=NOON,
        fired_at=NOON + timedelta(minutes=1),
        is_open=is_open,
    )


def notification(number: int = 1) -> Notification:
    return Notification(
        id=f"notification-{number}",
        at=NOON,
        kind=NotificationKind.FIRING,
        rule=RuleName.BACKLOG_COUNT,
        title="[FIRING] backlog count",
        text="too many: \0 ü",
        count=1,
        alarms=(alarm(number),),
    )


async def _holding(store: AlarmStore, holder: str = "a") -> int:
    term = await store.acquire(holder, TTL)
    assert term is not None
    return term


async def _sent(store: AlarmStore, term: int, *deliveries: Delivery) -> None:
    notifications = [item.notification for item in deliveries]
    assert await store.save("a", term, AlarmChanges(notifications=notifications, deliveries=deliveries))


async def _pages(store: AlarmStore) -> list[Sequence[str]]:
    pages: list[Sequence[str]] = []
    cursor: str | None = None
    while True:
        found, cursor = await store.alarms(2, cursor)
        pages.append([item.id for item in found])
        if cursor is None:
            return pages


class AlarmStoreContract:
    """What every alarm store promises. An adapter provides the fixtures `store`, `reopen` and `clock`."""

    async def test_one_gateway_holds_the_lease(self, store: AlarmStore) -> None:
        """Two evaluators would send every notification twice."""
        held = await store.acquire("a", TTL)
        refused = await store.acquire("b", TTL)

        assert held is not None
        assert refused is None

    async def test_the_holder_extends_the_lease_under_its_term(self, store: AlarmStore, clock: ManualClock) -> None:
        """An extension is not a takeover, so the evaluator keeps what it knows."""
        first = await store.acquire("a", TTL)
        clock.advance(10)
        second = await store.acquire("a", TTL)
        clock.advance(10)

        assert first == second
        assert await store.acquire("b", TTL) is None

    async def test_an_expired_lease_is_taken_over_under_a_higher_term(
        self, store: AlarmStore, clock: ManualClock
    ) -> None:
        """The evaluator was killed and another gateway continues."""
        before = await _holding(store)
        clock.advance(TTL)

        after = await store.acquire("b", TTL)

        assert after is not None
        assert after > before
        assert await store.acquire("a", TTL) is None

    async def test_a_released_lease_is_free_at_once(self, store: AlarmStore) -> None:
        """A gateway that stops normally leaves no gap."""
        await store.acquire("a", TTL)

        await store.release("b")
        assert await store.acquire("b", TTL) is None
        await store.release("a")
        assert await store.acquire("b", TTL) is not None

    async def test_a_former_evaluator_changes_nothing(self, store: AlarmStore, clock: ManualClock) -> None:
        """It was only slow, and its view is outdated."""
        term = await _holding(store)
        clock.advance(TTL)
        await store.acquire("b", TTL)

        is_saved = await store.save("a", term, AlarmChanges(alarms=[alarm()]))

        assert not is_saved
        assert (await store.load()).alarms == []

    async def test_what_was_saved_survives_a_restart(self, store: AlarmStore, reopen: Reopen) -> None:
        """The next evaluator continues with the same alarms and deliveries."""
        term = await _holding(store)
        item = Delivery(notification=notification(), channel="ops", due=NOON, attempts=2, error="HTTP status 500")
        changes = AlarmChanges(alarms=[alarm()], notifications=[item.notification], deliveries=[item])
        assert await store.save("a", term, changes)

        found = await (await reopen()).load()

        assert found.alarms == [alarm()]
        assert found.deliveries == [item]

    async def test_saving_again_replaces(self, store: AlarmStore) -> None:
        """A save whose response was lost is repeated."""
        term = await _holding(store)
        for value in (1.0, 2.0, 2.0):
            await store.save("a", term, AlarmChanges(alarms=[replace(alarm(), value=value)]))

        assert [item.value for item in (await store.load()).alarms] == [2.0]

    async def test_a_dropped_alarm_leaves_no_trace(self, store: AlarmStore) -> None:
        """A pending alarm that never fired is not history."""
        term = await _holding(store)
        await store.save("a", term, AlarmChanges(alarms=[alarm(1), alarm(2)]))

        await store.save("a", term, AlarmChanges(dropped=["alarm-1"]))

        assert [item.id for item in (await store.load()).alarms] == ["alarm-2"]
        assert await _pages(store) == [["alarm-2"]]

    async def test_closed_alarms_are_history(self, store: AlarmStore) -> None:
        """They are no longer evaluated, but listed, newest first and page by page."""
        term = await _holding(store)
        await store.save("a", term, AlarmChanges(alarms=[alarm(number) for number in range(1, 6)]))
        await store.save("a", term, AlarmChanges(alarms=[alarm(2, state=AlarmState.RESOLVED, is_open=False)]))

        opened = [item.id for item in (await store.load()).alarms]

        assert opened == ["alarm-1", "alarm-3", "alarm-4", "alarm-5"]
        assert await _pages(store) == [["alarm-5", "alarm-4"], ["alarm-3", "alarm-2"], ["alarm-1"]]

    async def test_a_sent_notification_is_no_longer_pending(self, store: AlarmStore) -> None:
        """The next evaluator must not send it again."""
        term = await _holding(store)
        item = Delivery(notification=notification(), channel="ops", due=NOON)
        await _sent(store, term, item, replace(item, channel="chat"))

        await _sent(store, term, replace(item, state=DeliveryState.SENT))

        assert [pending.channel for pending in (await store.load()).deliveries] == ["chat"]
        assert [found.id for found in (await store.notifications(10, None))[0]] == [item.notification.id]

    async def test_channel_states_count_deliveries(self, store: AlarmStore) -> None:
        """A channel that is down is visible with its error."""
        term = await _holding(store)
        item = Delivery(notification=notification(), channel="ops", due=NOON)
        await _sent(
            store,
            term,
            replace(item, state=DeliveryState.SENT, due=NOON + TTL),
            replace(item, notification=notification(2), attempts=3, error="HTTP status 503"),
            replace(item, notification=notification(3), state=DeliveryState.FAILED, error=None),
            replace(item, channel="chat"),
        )

        chat, ops = await store.channel_states()

        assert (chat.channel, chat.pending, chat.last_sent_at) == ("chat", 1, None)
        assert (ops.pending, ops.failed, ops.last_sent_at, ops.error) == (1, 1, NOON + TTL, "HTTP status 503")

    async def test_cleanup_keeps_what_is_open(self, store: AlarmStore, clock: ManualClock) -> None:
        """An alarm may fire for weeks, and a notification may still be on its way."""
        term = await _holding(store)
        closed = alarm(2, state=AlarmState.RESOLVED, is_open=False)
        await store.save("a", term, AlarmChanges(alarms=[alarm(1), closed]))
        item = Delivery(notification=notification(1), channel="ops", due=NOON)
        sent = replace(item, notification=notification(2), state=DeliveryState.SENT)
        await _sent(store, term, item, sent)

        await store.tidy(timedelta(days=1))
        assert await _pages(store) == [["alarm-2", "alarm-1"]]
        clock.advance(timedelta(days=2))
        await store.tidy(timedelta(days=1))

        assert await _pages(store) == [["alarm-1"]]
        assert [found.id for found in (await store.notifications(10, None))[0]] == ["notification-1"]

    async def test_a_malformed_cursor_is_refused(self, store: AlarmStore) -> None:
        """It comes from callers."""
        with pytest.raises(InvalidValue):
            await store.alarms(1, "x")
        with pytest.raises(InvalidValue):
            await store.notifications(1, "-1")
