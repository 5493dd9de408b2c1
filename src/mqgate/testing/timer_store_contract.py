"""The contract of timer stores."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from mqgate.core.errors import InvalidValue
from mqgate.core.message import Draft
from mqgate.ports.timer_store import Timer, TimerState, TimerStore
from mqgate.testing.clock import NOON, ManualClock

__all__ = ["TimerStoreContract"]

Reopen = Callable[[], Awaitable[TimerStore]]
MINUTE = timedelta(minutes=1)
WHOLE = Draft("whole", b"\x00\xff", "k", "t", {"a": "\u00fc"}, 7)


def _timer(number: int, due: datetime | None = None, *, topic: str = "orders") -> Timer:
    """Return timer `m<n>`, due `n` minutes after noon by default."""
    return Timer(topic, Draft(f"m{number}", f"body {number}".encode()), due or NOON + number * MINUTE)


async def _claimed(store: TimerStore, limit: int = 100) -> list[str]:
    return [timer.draft.id for timer in (await store.claim(limit))[0]]


async def _listed(store: TimerStore, **filters: Any) -> list[str]:
    """Return the ids of scheduled timers, read page by page."""
    query = {"topic": None, "since": None, "until": None, "limit": 2, **filters}
    ids: list[str] = []
    after: str | None = None
    while True:
        page, after = await store.list(after=after, **query)
        ids += [timer.draft.id for timer in page]
        if after is None:
            return ids


async def _state(store: TimerStore, number: int) -> TimerState | None:
    timer = await store.get(f"m{number}")
    return None if timer is None else timer.state


class TimerStoreContract:
    """Tests of a timer store. An adapter provides `store` (empty), its `clock`, and `reopen` (a restart)."""

    async def test_a_timer_keeps_the_whole_message_after_a_restart(self, store: TimerStore, reopen: Reopen) -> None:
        """A message may be delivered years after its publish."""
        await store.add([Timer("orders", WHOLE, NOON + timedelta(days=730), producer="shop")])

        found = await (await reopen()).get("whole")

        assert found is not None
        assert found._replace(number=0) == Timer("orders", WHOLE, NOON + timedelta(days=730), producer="shop")

    @pytest.mark.parametrize("topic", [None, "orders"])
    async def test_a_list_is_limited_to_a_producer(self, store: TimerStore, topic: str | None) -> None:
        """The key of a producer sees its own timers only; timers without a producer belong to no key."""
        owners = ("shop", None, "depot", "shop", "shop", None)
        await store.add([_timer(number)._replace(producer=owner) for number, owner in enumerate(owners)])

        assert await _listed(store, topic=topic, producer="shop") == ["m0", "m3", "m4"]
        assert await _listed(store, topic=topic, producer="nobody") == []
        assert len(await _listed(store, topic=topic)) == 6

    async def test_no_timer_is_claimed_before_it_is_due(self, store: TimerStore, clock: ManualClock) -> None:
        """Invariant 21, to the millisecond. The next due time is returned."""
        await store.add([_timer(1), _timer(2)])
        clock.advance(MINUTE - timedelta(milliseconds=1))

        early = await store.claim(100)
        clock.advance(timedelta(milliseconds=1))
        due, following = await store.claim(100)

        assert (list(early[0]), early[1]) == ([], NOON + MINUTE)
        assert [timer.draft for timer in due] == [_timer(1).draft]
        assert following == NOON + 2 * MINUTE

    @pytest.mark.parametrize("way", ["added", "retimed"])
    async def test_a_due_time_between_two_clock_ticks_is_not_claimed_early(
        self, store: TimerStore, clock: ManualClock, way: str
    ) -> None:
        """A timer must not be early even by a microsecond."""
        due = NOON + timedelta(microseconds=1_500)
        await store.add([_timer(1, due if way == "added" else NOON + MINUTE)])
        if way == "retimed":
            await store.change("m1", due)
        clock.advance(timedelta(milliseconds=1))

        early = await _claimed(store)
        clock.advance(timedelta(milliseconds=1))

        assert early == []
        assert await _claimed(store) == ["m1"]

    async def test_due_timers_are_claimed_earliest_first_up_to_the_limit(
        self, store: TimerStore, clock: ManualClock
    ) -> None:
        """After a downtime, the oldest timers are the latest."""
        await store.add([_timer(number) for number in (3, 1, 2, 9)])
        clock.advance(5 * MINUTE)

        first, second, third = [await _claimed(store, 2) for _ in range(3)]

        assert (first, second, third) == (["m1", "m2"], ["m3"], [])

    async def test_a_timer_is_claimed_once(self, store: TimerStore) -> None:
        """Several dispatchers may run at the same time."""
        await store.add([_timer(number, NOON) for number in range(1, 40)])

        found = await asyncio.gather(*(_claimed(store, 3) for _ in range(40)))

        ids = [timer for timers in found for timer in timers]
        assert sorted(ids) == sorted({f"m{number}" for number in range(1, 40)})

    async def test_unfinished_timers_are_returned_after_a_restart(self, store: TimerStore, reopen: Reopen) -> None:
        """A process may end between claim and dispatch. Nothing may be lost, and finished timers must not return."""
        await store.add([_timer(1, NOON), _timer(2, NOON), _timer(3)])
        due, _ = await store.claim(100)
        await store.finish(due[:1])

        again = await reopen()

        assert [timer.draft for timer in await again.unfinished()] == [due[1].draft]
        assert await _claimed(again) == []

    async def test_a_released_timer_is_due_again(self, store: TimerStore) -> None:
        """Its dispatch failed, so it must be dispatched again."""
        await store.add([_timer(1, NOON)])
        due, _ = await store.claim(100)

        await store.release(due)

        assert await store.unfinished() == []
        assert await _claimed(store) == ["m1"]

    async def test_pages_list_every_scheduled_timer_once_by_due_time(self, store: TimerStore) -> None:
        """Also with equal due times, and without claimed, delivered or cancelled timers."""
        await store.add([_timer(0, NOON), *(_timer(number) for number in (5, 3, 1))])
        await store.add([_timer(number, NOON + 2 * MINUTE) for number in (20, 21, 22)])
        await store.change("m5", None)
        await store.claim(1)

        assert await _listed(store) == ["m1", "m20", "m21", "m22", "m3"]

    async def test_scheduled_timers_are_filtered_by_topic_and_time(self, store: TimerStore) -> None:
        """The interval includes its start and excludes its end."""
        await store.add([_timer(number, topic="red" if number % 2 else "blue") for number in range(1, 7)])

        assert await _listed(store, topic="red") == ["m1", "m3", "m5"]
        assert await _listed(store, since=NOON + 2 * MINUTE, until=NOON + 5 * MINUTE) == ["m2", "m3", "m4"]
        assert await _listed(store, topic="blue", since=NOON + 3 * MINUTE) == ["m4", "m6"]

    @pytest.mark.parametrize(
        "after", ["", "1", "1.", ".1", "-1.1", "1.1.1", "one.1", "9" * 18 + ".1", "1." + "9" * 19, "9" * 5_000 + ".1"]
    )
    async def test_an_invalid_cursor_is_rejected(self, store: TimerStore, after: str) -> None:
        """Cursors come from clients, so a bad one must not be an internal error."""
        await store.add([_timer(1)])

        with pytest.raises(InvalidValue) as refused:
            await store.list(topic=None, since=None, until=None, limit=1, after=after)

        assert refused.value.members["field"] == "cursor"

    async def test_a_cancelled_timer_is_never_due_and_a_repeat_reports_it(
        self, store: TimerStore, clock: ManualClock
    ) -> None:
        """A client may repeat a cancel safely, for at least 10 minutes."""
        await store.add([_timer(1)])

        first = await store.change("m1", None)
        clock.advance(9 * MINUTE)
        again = await store.change("m1", None)

        assert (first, again) == (TimerState.SCHEDULED, TimerState.CANCELLED)
        assert await _claimed(store) == []
        assert await _state(store, 1) is TimerState.CANCELLED

    async def test_a_retimed_timer_is_due_at_its_new_time(self, store: TimerStore, clock: ManualClock) -> None:
        """The new time may be earlier or later."""
        await store.add([_timer(1), _timer(5)])
        await store.change("m1", NOON + 9 * MINUTE)
        await store.change("m5", NOON + 2 * MINUTE)
        clock.advance(2 * MINUTE)

        due, following = await store.claim(100)

        assert [timer.draft.id for timer in due] == ["m5"]
        assert following == NOON + 9 * MINUTE

    @pytest.mark.parametrize("is_finished", [False, True], ids=["claimed", "delivered"])
    async def test_a_claimed_timer_can_be_neither_cancelled_nor_retimed(
        self, store: TimerStore, is_finished: bool
    ) -> None:
        """Claimed counts as delivered. The returned state tells the client which one happened."""
        await store.add([_timer(1, NOON)])
        due, _ = await store.claim(100)
        if is_finished:
            await store.finish(due)
        expected = TimerState.DELIVERED if is_finished else TimerState.CLAIMED

        states = [await store.change("m1", None), await store.change("m1", NOON + MINUTE)]

        assert states == [expected, expected]
        assert await _state(store, 1) is expected

    async def test_of_a_concurrent_cancel_and_claim_exactly_one_succeeds(self, store: TimerStore) -> None:
        """Every message must be either cancelled or claimed."""
        await store.add([_timer(number, NOON) for number in range(100)])

        cancels = [store.change(f"m{number}", None) for number in range(100)]
        found = await asyncio.gather(*cancels[:50], *(_claimed(store, 10) for _ in range(10)), *cancels[50:])

        states = [*found[:50], *found[60:]]
        cancelled = {f"m{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
        claimed = {timer for timers in found[50:60] for timer in timers}  # type: ignore[union-attr]
        assert cancelled | claimed == {f"m{number}" for number in range(100)}
        assert not cancelled & claimed

    async def test_an_unknown_timer_is_none(self, store: TimerStore) -> None:
        """It must be neither an error nor a new timer."""
        assert await store.get("nobody") is None
        assert await store.change("nobody", None) is None
        assert await store.change("nobody", NOON) is None
