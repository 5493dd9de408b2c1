"""Timers that several gateways use, each with its own pool and owner."""

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
    """Return three gateways that have sent a heartbeat."""
    found = [Gateway(await open_database()) for _ in range(3)]
    for gateway in found:
        await gateway.presence.run_once()
    return found


def due_now(count: int, topic: str = "orders") -> list[Timer]:
    return [Timer(topic, Draft(f"{topic}-{number}", b"body"), NOON) for number in range(count)]


async def test_concurrent_claims_share_the_due_timers(gateways: list[Gateway]) -> None:
    """Every timer must be claimed by exactly one gateway."""
    await gateways[0].timers.add(due_now(300))

    found = await asyncio.gather(*(gateways[turn % 3].claimed(10) for turn in range(60)))

    ids = [message_id for claimed in found for message_id in claimed]
    assert sorted(ids) == sorted(f"orders-{number}" for number in range(300))


async def test_cancel_on_one_gateway_and_claim_on_another_have_one_winner(gateways: list[Gateway]) -> None:
    """A timer must be cancelled or claimed, never both and never neither."""
    one, other, _ = gateways
    await one.timers.add(due_now(100))

    cancels = [one.timers.change(f"orders-{number}", None) for number in range(100)]
    *states, first, second = await asyncio.gather(*cancels, other.claimed(50), other.claimed(50))

    cancelled = {f"orders-{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
    # Claims skip rows that are locked by a cancel; a cancel that loses the race finds the timer claimed.
    assert not cancelled & {*first, *second}
    assert cancelled | {*first, *second} == {f"orders-{number}" for number in range(100)}


async def test_retime_on_one_gateway_and_claim_on_another_have_one_winner(gateways: list[Gateway]) -> None:
    """A message that was postponed until tomorrow must not be delivered today."""
    one, other, _ = gateways
    await one.timers.add(due_now(50))

    later = [one.timers.change(f"orders-{number}", NOON + timedelta(days=1)) for number in range(50)]
    *states, claimed = await asyncio.gather(*later, other.claimed(50))

    moved = {f"orders-{number}" for number, state in enumerate(states) if state is TimerState.SCHEDULED}
    assert not moved & set(claimed)
    assert moved | set(claimed) == {f"orders-{number}" for number in range(50)}


async def test_a_starting_gateway_takes_no_claims_of_a_live_one(gateways: list[Gateway]) -> None:
    """A rolling restart must not send messages twice."""
    one, starting, _ = gateways
    await one.timers.add(due_now(5))
    claimed = await one.claimed()

    assert await starting.unfinished() == []
    assert await one.unfinished() == claimed


async def test_claims_of_a_crashed_gateway_go_to_one_other_gateway(gateways: list[Gateway], clock: ManualClock) -> None:
    """They must not be taken over before the lease ends, nor by two gateways."""
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


async def test_claims_of_a_stopped_gateway_can_be_taken_over_at_once(gateways: list[Gateway]) -> None:
    """A restart must not wait for the end of a lease."""
    leaving, other, _ = gateways
    await leaving.timers.add(due_now(3))
    claimed = await leaving.claimed()

    await leaving.presence.stop()

    assert await other.unfinished() == claimed


async def test_a_crashed_gateway_is_gone_although_the_clock_was_set_back(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """Otherwise it would count as alive until the clock reaches the old time."""
    dead, other, _ = gateways
    await dead.timers.add([Timer("orders", Draft("old", b"body"), NOON - timedelta(days=1))])
    claimed = await dead.claimed()
    clock.advance(-timedelta(minutes=10))

    await other.presence.run_once()

    assert await other.unfinished() == claimed


async def test_a_slow_owner_cannot_release_a_claim_that_was_taken_over(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """Otherwise a third gateway would claim a timer that the second is sending."""
    slow, heir, third = gateways
    await slow.timers.add(due_now(1))
    claimed, _ = await slow.timers.claim(1)
    clock.advance(LEASE)
    await heir.presence.run_once()
    taken = await heir.timers.unfinished()

    await slow.timers.release(claimed)

    assert await third.claimed() == []
    assert await heir.timers.unfinished() == taken


async def test_a_timer_sent_by_a_slow_owner_is_delivered(gateways: list[Gateway], clock: ManualClock) -> None:
    """The message is in the log: a later release by the new owner must not send it again."""
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


async def test_failed_timers_do_not_delay_others(gateways: list[Gateway], clock: ManualClock) -> None:
    """Any number of timers of an unavailable broker must sort after timers that were not tried yet."""
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
    # Then the timers that failed longest ago.
    assert await one.claimed(100) == [timer.draft.id for timer in first]


async def test_a_new_due_time_clears_an_earlier_failure(gateways: list[Gateway], clock: ManualClock) -> None:
    """Failed timers are always due, but this one must wait for its new time."""
    one, *_ = gateways
    await one.timers.add(due_now(1))
    claimed, _ = await one.timers.claim(1)
    await one.timers.release(claimed)

    await one.timers.change("orders-0", NOON + timedelta(minutes=1))
    early, following = await one.timers.claim(1)
    clock.advance(timedelta(minutes=1))

    assert (list(early), following) == ([], NOON + timedelta(minutes=1))
    assert await one.claimed() == ["orders-0"]


async def test_the_watch_reports_timers_and_abandoned_claims_of_others(
    gateways: list[Gateway], clock: ManualClock
) -> None:
    """The gateway that scheduled a timer may have crashed when it is due."""
    calls: list[datetime | str] = []
    dead, living, _ = gateways
    watch = TimerWatch(living.timers, on_due=calls.append, on_abandoned=lambda: calls.append("abandoned"))

    await watch.run_once()
    await dead.timers.add([*due_now(1), Timer("orders", Draft("later", b"x"), NOON + timedelta(hours=1))])
    await dead.claimed()
    await watch.run_once()
    clock.advance(LEASE)
    await living.presence.run_once()
    await watch.run_once()

    assert calls == [NOON + timedelta(hours=1), "abandoned", NOON + timedelta(hours=1)]


async def test_the_watch_continues_after_a_failed_check(gateways: list[Gateway]) -> None:
    """The watch runs as long as the gateway. Starting and stopping twice is allowed."""
    watch = TimerWatch(
        gateways[0].timers, on_due=lambda _: None, on_abandoned=lambda: None, interval=timedelta(milliseconds=1)
    )
    await gateways[0].database.close()

    watch.start()
    watch.start()
    await asyncio.sleep(0.1)

    # If the failure had ended the watch, this would raise it.
    await watch.stop()
    await watch.stop()


async def test_deleting_a_topic_cancels_all_of_its_timers(gateways: list[Gateway]) -> None:
    """There may be more of them than one statement cancels. Timers of other topics must stay."""
    one, other, _ = gateways
    await one.timers.add([*due_now(4_500), *due_now(2, "others")])
    await other.timers.claim(100)

    await one.timers.cancel_all("orders")

    assert await one.claimed(10) == ["others-0", "others-1"]
    assert await other.unfinished() == []
    assert await one.timers.change("orders-4499", None) is TimerState.CANCELLED


@pytest.mark.parametrize("text", ["a\0b", "\\0", "a\\", "\\\0\\\\0", "ü\U0001f600"])
async def test_any_text_is_stored_and_returned_unchanged(gateways: list[Gateway], text: str) -> None:
    """PostgreSQL text cannot contain U+0000, but keys and tags can."""
    draft = Draft("whole", b"\0", text, text, {text: text}, -(1 << 31))
    await gateways[0].timers.add([Timer("orders", draft, NOON)])

    (found,), _ = await gateways[1].timers.claim(1)

    assert found.draft == draft


async def test_an_invalid_id_is_unknown(gateways: list[Gateway]) -> None:
    """An id of a URL path may contain any text and must not cause an error."""
    assert await gateways[0].timers.get("a\0b") is None
    assert await gateways[0].timers.change("a\0b", None) is None


async def test_only_decided_timers_are_deleted(gateways: list[Gateway], clock: ManualClock) -> None:
    """Old timers must not fill the disk, but a repeated cancel must be recognised for at least 10 minutes."""
    store = gateways[0].timers
    await store.add([Timer("orders", Draft(name, b"x"), NOON) for name in ("done", "dropped", "claimed")])
    await store.add([Timer("orders", Draft("waiting", b"x"), NOON + timedelta(days=1))])
    await store.change("dropped", None)
    due, _ = await store.claim(10)
    await store.finish([timer for timer in due if timer.draft.id == "done"])

    clock.advance(timedelta(minutes=10))
    await asyncio.gather(*(gateway.timers.tidy() for gateway in gateways))
    remembered = [await store.change(name, None) for name in ("done", "dropped")]
    clock.advance(timedelta(minutes=20))
    await asyncio.gather(*(gateway.timers.tidy() for gateway in gateways))

    assert remembered == [TimerState.DELIVERED, TimerState.CANCELLED]
    assert await store.get("done") is None
    assert await store.get("dropped") is None
    assert await store.get("waiting") is not None
    assert [timer.draft.id for timer in await store.unfinished()] == ["claimed"]


async def test_no_timer_query_reads_the_whole_table(gateways: list[Gateway], clock: ManualClock) -> None:
    """There may be a million timers: every query must read only the beginning of an index."""
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
        "limit": 500,
        "owner": presence.owner,
        "topic": "topic1",
        "producer": "shop",
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
    """Return the query plan of a prepared statement."""

    async def job(transaction: Transaction) -> str:
        connection = transaction._connection
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        given = {**values, "now": NOON + timedelta(hours=3)}
        rows = await (await connection.execute(b"EXPLAIN " + sql, given, prepare=True)).fetchall()
        return "\n".join(row[0] for row in rows)

    return await database.transact(job)
