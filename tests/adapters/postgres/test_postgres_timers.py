"""Timers that several gateways share: each has a pool and an owner of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from mqgate.adapters.postgres import timer_store
from mqgate.adapters.postgres.database import Database, Transaction
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.adapters.postgres.timer_watch import TimerWatch
from mqgate.core.message import Draft
from mqgate.ports.timer_store import Timer, TimerState
from mqgate.testing.clock import NOON, ManualClock

OpenDatabase = Callable[..., Awaitable[Database]]
LEASE = timedelta(seconds=5)


class Gateway:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.presence = Presence(database, lease=LEASE)
        self.timers = PostgresTimerStore(database, self.presence)

    async def claimed(self, most: int = 100) -> list[str]:
        return [timer.draft.id for timer in (await self.timers.claim(most))[0]]

    async def unfinished(self) -> list[str]:
        return [timer.draft.id for timer in await self.timers.unfinished()]


@pytest.fixture
async def gateways(open_database: OpenDatabase) -> list[Gateway]:
    """Three gateways, all of them just seen."""
    found = [Gateway(await open_database()) for _ in range(3)]
    for gateway in found:
        await gateway.presence.run_once()
    return found


def due_now(count: int, topic: str = "orders") -> list[Timer]:
    return [Timer(topic, Draft(f"{topic}-{number}", b"body"), NOON) for number in range(count)]


async def test_gateways_that_claim_at_once_share_what_is_due(gateways: list[Gateway]) -> None:
    """Every timer goes to one of them: nothing twice, nothing left."""
    await gateways[0].timers.add(due_now(300))

    found = await asyncio.gather(*(gateways[turn % 3].claimed(10) for turn in range(60)))

    ids = [each for some in found for each in some]
    assert sorted(ids) == sorted(f"orders-{number}" for number in range(300))


async def test_cancel_on_one_gateway_and_claim_on_another_have_one_winner(gateways: list[Gateway]) -> None:
    """A hundred races over separate connections: cancelled or claimed, never both, never neither."""
    one, other, _ = gateways
    await one.timers.add(due_now(100))

    cancels = [one.timers.change(f"orders-{number}", None) for number in range(100)]
    *states, first, second = await asyncio.gather(*cancels, other.claimed(50), other.claimed(50))

    cancelled = {f"orders-{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
    # What was being cancelled while the claims looked is left out by them; whoever lost that race finds it claimed.
    assert not cancelled & {*first, *second}
    assert cancelled | {*first, *second} == {f"orders-{number}" for number in range(100)}


async def test_retime_on_one_gateway_and_claim_on_another_have_one_winner(gateways: list[Gateway]) -> None:
    """A message that was told to wait until tomorrow is not delivered today."""
    one, other, _ = gateways
    await one.timers.add(due_now(50))

    later = [one.timers.change(f"orders-{number}", NOON + timedelta(days=1)) for number in range(50)]
    *states, claimed = await asyncio.gather(*later, other.claimed(50))

    moved = {f"orders-{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
    assert not moved & set(claimed)
    assert moved | set(claimed) == {f"orders-{number}" for number in range(50)}


async def test_who_starts_takes_nothing_from_who_is_dispatching(gateways: list[Gateway]) -> None:
    """A rolling restart must not send everything twice."""
    one, starting, _ = gateways
    await one.timers.add(due_now(5))
    claimed = await one.claimed()

    assert await starting.unfinished() == []
    assert await one.unfinished() == claimed


async def test_what_a_dead_gateway_had_claimed_goes_to_one_of_the_others(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """After its lease, not before; and not to both who ask at once."""
    dead, *others = gateways
    await dead.timers.add(due_now(50))
    claimed = await dead.claimed()
    clock.advance(LEASE - timedelta(milliseconds=1))
    for other in others:
        await other.presence.run_once()

    before = await asyncio.gather(*(other.unfinished() for other in others))
    clock.advance(timedelta(milliseconds=1))
    after = await asyncio.gather(*(other.unfinished() for other in others))

    assert before == [[], []]
    assert sorted(after[0] + after[1]) == sorted(claimed)


async def test_a_gateway_that_says_goodbye_leaves_its_claims_at_once(gateways: list[Gateway]) -> None:
    """A restart need not wait for a lease."""
    leaving, other, _ = gateways
    await leaving.timers.add(due_now(3))
    claimed = await leaving.claimed()

    await leaving.presence.stop()

    assert await other.unfinished() == claimed


async def test_a_clock_that_is_set_back_makes_nobody_wait_for_the_dead(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """Else a dead gateway would be alive until the clock is where it was."""
    dead, other, _ = gateways
    await dead.timers.add([Timer("orders", Draft("old", b"body"), NOON - timedelta(days=1))])
    claimed = await dead.claimed()
    clock.advance(-timedelta(minutes=10))

    await other.presence.run_once()

    assert await other.unfinished() == claimed


async def test_a_slow_owner_cannot_let_go_of_what_was_taken_over(gateways: list[Gateway], clock: ManualClock) -> None:
    """Else a third gateway would claim what the second is sending."""
    slow, heir, third = gateways
    await slow.timers.add(due_now(1))
    claimed, _ = await slow.timers.claim(1)
    clock.advance(LEASE)
    await heir.presence.run_once()
    taken = await heir.timers.unfinished()

    await slow.timers.release(claimed)

    assert await third.claimed() == []
    assert await heir.timers.unfinished() == taken


async def test_what_a_slow_owner_sent_is_delivered_although_it_was_taken_over(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """It is in the log: whoever gives it back later must not have it sent again."""
    slow, heir, third = gateways
    await slow.timers.add(due_now(1))
    claimed, _ = await slow.timers.claim(1)
    clock.advance(LEASE)
    await heir.presence.run_once()
    taken = await heir.timers.unfinished()

    await slow.timers.finish(claimed)
    await heir.timers.release(taken)

    assert await third.claimed() == []
    assert await third.timers.change("orders-0", None) is TimerState.DELIVERED


async def test_what_failed_keeps_nobody_waiting(gateways: list[Gateway], clock: ManualClock) -> None:
    """The timers of a dead broker, however many, stand behind what has not been tried yet."""
    one, other, _ = gateways
    await one.timers.add(due_now(200, "broken"))
    first, _ = await one.timers.claim(100)
    clock.advance(1)
    await one.timers.release(first)
    await other.timers.add([Timer("well", Draft("well", b"body"), NOON + timedelta(seconds=1))])

    second, _ = await other.timers.claim(101)
    await other.timers.release(second)
    clock.advance(1)

    assert [timer.draft.id for timer in second][-1] == "well"
    assert not {timer.draft.id for timer in first} & {timer.draft.id for timer in second}
    # And then those that failed the longest ago.
    assert await one.claimed(100) == [timer.draft.id for timer in first]


async def test_a_retimed_timer_that_had_failed_is_as_good_as_new(gateways: list[Gateway], clock: ManualClock) -> None:
    """It is not due before its new time, although failed ones are always due."""
    one, *_ = gateways
    await one.timers.add(due_now(1))
    claimed, _ = await one.timers.claim(1)
    await one.timers.release(claimed)

    await one.timers.change("orders-0", NOON + timedelta(minutes=1))
    early, following = await one.timers.claim(1)
    clock.advance(timedelta(minutes=1))

    assert (list(early), following) == ([], NOON + timedelta(minutes=1))
    assert await one.claimed() == ["orders-0"]


async def test_a_gateway_hears_of_what_others_scheduled_and_left(gateways: list[Gateway], clock: ManualClock) -> None:
    """The one that scheduled it may be dead by the time it is due."""
    heard: list[datetime | str] = []
    dead, living, _ = gateways
    watch = TimerWatch(living.timers, planned=heard.append, abandoned=lambda: heard.append("abandoned"))

    await watch.run_once()
    await dead.timers.add([*due_now(1), Timer("orders", Draft("later", b"x"), NOON + timedelta(hours=1))])
    await dead.claimed()
    await watch.run_once()
    clock.advance(LEASE)
    await living.presence.run_once()
    await watch.run_once()

    assert heard == [NOON + timedelta(hours=1), "abandoned", NOON + timedelta(hours=1)]


async def test_a_watch_that_cannot_look_goes_on(gateways: list[Gateway]) -> None:
    """It runs as long as the gateway; starting and stopping twice are harmless."""
    watch = TimerWatch(
        gateways[0].timers, planned=lambda _: None, abandoned=lambda: None, interval=timedelta(milliseconds=1)
    )
    await gateways[0].database.close()

    watch.start()
    watch.start()
    await asyncio.sleep(0.1)

    # Had it ended of what it failed with, this would raise that.
    await watch.stop()
    await watch.stop()


async def test_a_going_topic_takes_all_of_its_timers_along(gateways: list[Gateway]) -> None:
    """Claimed or scheduled, more than one statement's worth; and nobody else's."""
    one, other, _ = gateways
    await one.timers.add([*due_now(4_500), *due_now(2, "others")])
    await other.timers.claim(100)

    await one.timers.cancel_all("orders")

    assert await one.claimed(10) == ["others-0", "others-1"]
    assert await other.unfinished() == []
    assert await one.timers.change("orders-4499", None) is TimerState.CANCELLED


@pytest.mark.parametrize("text", ["a\0b", "\\0", "a\\", "\\\0\\\\0", "ü\U0001f600"])
async def test_a_message_comes_back_whatever_its_text_contains(gateways: list[Gateway], text: str) -> None:
    """PostgreSQL has no U+0000; messages may."""
    draft = Draft("whole", b"\0", text, text, {text: text}, -(1 << 31))
    await gateways[0].timers.add([Timer("orders", draft, NOON)])

    (found,), _ = await gateways[1].timers.claim(1)

    assert found.draft == draft


async def test_an_id_that_nobody_can_have_is_unknown(gateways: list[Gateway]) -> None:
    """Whatever stands in a path is no fault of the store."""
    assert await gateways[0].timers.get("a\0b") is None
    assert await gateways[0].timers.change("a\0b", None) is None


async def test_decided_timers_are_forgotten_after_a_while_and_pending_ones_never(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """Disk is for what is still to come; a repeated cancel is known for 10 minutes at least."""
    store = gateways[0].timers
    await store.add([Timer("orders", Draft(each, b"x"), NOON) for each in ("done", "dropped", "claimed")])
    await store.add([Timer("orders", Draft("waiting", b"x"), NOON + timedelta(days=1))])
    await store.change("dropped", None)
    due, _ = await store.claim(10)
    await store.finish([each for each in due if each.draft.id == "done"])

    clock.advance(timedelta(minutes=10))
    await asyncio.gather(*(gateway.timers.tidy() for gateway in gateways))
    remembered = [await store.change(each, None) for each in ("done", "dropped")]
    clock.advance(timedelta(minutes=20))
    await asyncio.gather(*(gateway.timers.tidy() for gateway in gateways))

    assert remembered == [TimerState.DELIVERED, TimerState.CANCELLED]
    assert await store.get("done") is None
    assert await store.get("dropped") is None
    assert await store.get("waiting") is not None
    assert [each.draft.id for each in await store.unfinished()] == ["claimed"]


async def test_no_question_about_timers_reads_them_all(gateways: list[Gateway], clock: ManualClock) -> None:
    """A million may wait: claim, the next due, a list and a look-up are the beginning of an index each."""
    database, presence = gateways[0].database, gateways[0].presence
    await database.write(
        b"INSERT INTO timer (id, topic, due, failed_at) "
        b"SELECT 'm' || n, 'topic' || n %% 10, %(noon)s + n * interval '1 second', "
        b"CASE WHEN n < 5000 THEN %(noon)s END FROM generate_series(1, 30000) AS n",
        {"noon": NOON},
    )
    await database.write(b"ANALYZE timer")
    clock.advance(timedelta(hours=3))
    values = {
        "most": 500,
        "owner": presence.owner,
        "topic": "topic1",
        "id": "m7",
        "since": NOON,
        "until": NOON + timedelta(days=9),
        "due": NOON + timedelta(hours=5),
        "number": 7,
        "numbers": [1, 2, 3],
        "kept": timedelta(minutes=1),
    }
    names = set(timer_store._SQL) - {"add"}
    plans = {
        (name, mode): await _plan(database, timer_store._SQL[name], values, mode)
        for name in names
        for mode in ("force_custom_plan", "force_generic_plan")
    }

    assert [plan for plan in plans.items() if "Seq Scan on timer" in plan[1]] == []


async def _plan(database: Database, sql: bytes, values: dict[str, object], mode: str) -> str:
    """How PostgreSQL would go about it: as prepared, with values known or not."""

    async def job(transaction: Transaction) -> str:
        connection = transaction._connection
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        given = {**values, "now": NOON + timedelta(hours=3)}
        rows = await (await connection.execute(b"EXPLAIN " + sql, given, prepare=True)).fetchall()
        return "\n".join(row[0] for row in rows)

    return await database.transact(job)
