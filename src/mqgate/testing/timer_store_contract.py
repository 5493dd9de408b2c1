"""What every store of timers promises."""

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
    """Timer `m<n>`, due so many minutes after noon unless told."""
    return Timer(topic, Draft(f"m{number}", f"body {number}".encode()), due or NOON + number * MINUTE)


async def _claimed(store: TimerStore, limit: int = 100) -> list[str]:
    return [timer.draft.id for timer in (await store.claim(limit))[0]]


async def _listed(store: TimerStore, **wish: Any) -> list[str]:
    """Ids of scheduled timers, read page by page."""
    asked = {"topic": None, "since": None, "until": None, "limit": 2, **wish}
    ids: list[str] = []
    after: str | None = None
    while True:
        page, after = await store.list(after=after, **asked)
        ids += [timer.draft.id for timer in page]
        if after is None:
            return ids


async def _state(store: TimerStore, number: int) -> TimerState | None:
    timer = await store.get(f"m{number}")
    return None if timer is None else timer.state


class TimerStoreContract:
    """An adapter passes by providing `store`, empty, `clock`, which it goes by, and `reopen`, as after a restart."""

    async def test_a_timer_keeps_the_whole_message_over_a_restart(self, store: TimerStore, reopen: Reopen) -> None:
        """What is delivered in two years is what was published today."""
        await store.add([Timer("orders", WHOLE, NOON + timedelta(days=730))])

        found = await (await reopen()).get("whole")

        assert found is not None
        assert found._replace(number=0) == Timer("orders", WHOLE, NOON + timedelta(days=730))

    async def test_nothing_is_claimed_early(self, store: TimerStore, clock: ManualClock) -> None:
        """Invariant 21, to the millisecond; and the next due time is told."""
        await store.add([_timer(1), _timer(2)])
        clock.advance(MINUTE - timedelta(milliseconds=1))

        early = await store.claim(100)
        clock.advance(timedelta(milliseconds=1))
        due, following = await store.claim(100)

        assert (list(early[0]), early[1]) == ([], NOON + MINUTE)
        assert [timer.draft for timer in due] == [_timer(1).draft]
        assert following == NOON + 2 * MINUTE

    @pytest.mark.parametrize("way", ["added", "retimed"])
    async def test_a_fraction_of_the_stores_tick_is_waited_for(
        self, store: TimerStore, clock: ManualClock, way: str
    ) -> None:
        """Never early means not by a microsecond."""
        due = NOON + timedelta(microseconds=1_500)
        await store.add([_timer(1, due if way == "added" else NOON + MINUTE)])
        if way == "retimed":
            await store.change("m1", due)
        clock.advance(timedelta(milliseconds=1))

        early = await _claimed(store)
        clock.advance(timedelta(milliseconds=1))

        assert early == []
        assert await _claimed(store) == ["m1"]

    async def test_what_is_due_is_claimed_the_earliest_first_and_at_most_as_asked(
        self, store: TimerStore, clock: ManualClock
    ) -> None:
        """After a downtime the oldest is the latest already."""
        await store.add([_timer(number) for number in (3, 1, 2, 9)])
        clock.advance(5 * MINUTE)

        first, second, third = [await _claimed(store, 2) for _ in range(3)]

        assert (first, second, third) == (["m1", "m2"], ["m3"], [])

    async def test_a_timer_is_claimed_once(self, store: TimerStore) -> None:
        """However many look at the same moment."""
        await store.add([_timer(number, NOON) for number in range(1, 40)])

        found = await asyncio.gather(*(_claimed(store, 3) for _ in range(40)))

        ids = [each for some in found for each in some]
        assert sorted(ids) == sorted({f"m{number}" for number in range(1, 40)})

    async def test_what_was_claimed_and_not_finished_is_known_after_a_restart(
        self, store: TimerStore, reopen: Reopen
    ) -> None:
        """A process died between claim and dispatch: nothing is lost, and what was finished does not come again."""
        await store.add([_timer(1, NOON), _timer(2, NOON), _timer(3)])
        due, _ = await store.claim(100)
        await store.finish(due[:1])

        again = await reopen()

        assert [timer.draft for timer in await again.unfinished()] == [due[1].draft]
        assert await _claimed(again) == []

    async def test_a_released_timer_is_due_again(self, store: TimerStore) -> None:
        """Its dispatch failed; it stays as due as it was."""
        await store.add([_timer(1, NOON)])
        due, _ = await store.claim(100)

        await store.release(due)

        assert await store.unfinished() == []
        assert await _claimed(store) == ["m1"]

    async def test_scheduled_timers_are_listed_by_due_time_page_by_page(self, store: TimerStore) -> None:
        """Nothing twice, nothing missed, also of equal times; without what is claimed, delivered or cancelled."""
        await store.add([_timer(0, NOON), *(_timer(number) for number in (5, 3, 1))])
        await store.add([_timer(number, NOON + 2 * MINUTE) for number in (20, 21, 22)])
        await store.change("m5", None)
        await store.claim(1)

        assert await _listed(store) == ["m1", "m20", "m21", "m22", "m3"]

    async def test_scheduled_timers_are_found_by_topic_and_time(self, store: TimerStore) -> None:
        """From the first instant up to before the last."""
        await store.add([_timer(number, topic="red" if number % 2 else "blue") for number in range(1, 7)])

        assert await _listed(store, topic="red") == ["m1", "m3", "m5"]
        assert await _listed(store, since=NOON + 2 * MINUTE, until=NOON + 5 * MINUTE) == ["m2", "m3", "m4"]
        assert await _listed(store, topic="blue", since=NOON + 3 * MINUTE) == ["m4", "m6"]

    @pytest.mark.parametrize(
        "after", ["", "1", "1.", ".1", "-1.1", "1.1.1", "one.1", "9" * 18 + ".1", "1." + "9" * 19, "9" * 5_000 + ".1"]
    )
    async def test_a_place_that_no_page_named_is_refused(self, store: TimerStore, after: str) -> None:
        """Callers send it: neither a time beyond the calendar nor a number beyond the column is a fault of ours."""
        await store.add([_timer(1)])

        with pytest.raises(InvalidValue) as refused:
            await store.list(topic=None, since=None, until=None, limit=1, after=after)

        assert refused.value.members["field"] == "cursor"

    async def test_a_cancelled_timer_never_comes_due_and_says_so_again(
        self, store: TimerStore, clock: ManualClock
    ) -> None:
        """Repeating a cancel is safe, for 10 minutes at least."""
        await store.add([_timer(1)])

        first = await store.change("m1", None)
        clock.advance(9 * MINUTE)
        again = await store.change("m1", None)

        assert (first, again) == (TimerState.SCHEDULED, TimerState.CANCELLED)
        assert await _claimed(store) == []
        assert await _state(store, 1) is TimerState.CANCELLED

    async def test_a_retimed_timer_is_due_at_its_new_time(self, store: TimerStore, clock: ManualClock) -> None:
        """Earlier or later."""
        await store.add([_timer(1), _timer(5)])
        await store.change("m1", NOON + 9 * MINUTE)
        await store.change("m5", NOON + 2 * MINUTE)
        clock.advance(2 * MINUTE)

        due, following = await store.claim(100)

        assert [timer.draft.id for timer in due] == ["m5"]
        assert following == NOON + 9 * MINUTE

    @pytest.mark.parametrize("is_finished", [False, True], ids=["claimed", "delivered"])
    async def test_what_was_claimed_can_be_neither_cancelled_nor_retimed(
        self, store: TimerStore, is_finished: bool
    ) -> None:
        """Claimed for dispatch counts as delivered: one of the two wins, and the answer says which."""
        await store.add([_timer(1, NOON)])
        due, _ = await store.claim(100)
        if is_finished:
            await store.finish(due)
        expected = TimerState.DELIVERED if is_finished else TimerState.CLAIMED

        states = [await store.change("m1", None), await store.change("m1", NOON + MINUTE)]

        assert states == [expected, expected]
        assert await _state(store, 1) is expected

    async def test_cancel_and_claim_at_once_have_one_winner(self, store: TimerStore) -> None:
        """A hundred races: every message is cancelled or claimed, none both, none neither."""
        await store.add([_timer(number, NOON) for number in range(100)])

        cancels = [store.change(f"m{number}", None) for number in range(100)]
        found = await asyncio.gather(*cancels[:50], *(_claimed(store, 10) for _ in range(10)), *cancels[50:])

        states = [*found[:50], *found[60:]]
        cancelled = {f"m{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
        claimed = {each for some in found[50:60] for each in some}  # type: ignore[union-attr]
        assert cancelled | claimed == {f"m{number}" for number in range(100)}
        assert not cancelled & claimed

    async def test_an_unknown_timer_is_nothing(self, store: TimerStore) -> None:
        """Not an error, not a new one."""
        assert await store.get("nobody") is None
        assert await store.change("nobody", None) is None
        assert await store.change("nobody", NOON) is None
