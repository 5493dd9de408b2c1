"""Reads of the newest messages from memory: they must return what the database would return."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from mqgate.adapters.sqlite import message_rows
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.core.errors import StorageFull
from mqgate.core.message import Draft, Message
from mqgate.testing.clock import ManualClock
from mqgate.testing.samples import a_draft

OpenEngine = Callable[..., Engine]
LARGE = 1 << 30
MIB = 1 << 20
TOPIC, QUEUE = "orders", "local:0"


async def stored(
    engine: Engine, log: SqliteMessageLog, queue: str, offset: int, max_count: int, max_bytes: int
) -> list[Message]:
    """Return what the database returns for a read."""
    number = next(state.number for state in log.queues_of(TOPIC) if state.name == queue)
    rows = await engine.read(lambda view: message_rows.read(view, number, offset, max_count, max_bytes))
    return [message_rows.message_of(TOPIC, queue, row) for row in rows]


async def test_the_newest_messages_are_read_without_the_database(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receive behind a live producer must not pay for a query and a change of threads."""
    log = SqliteMessageLog(engine)
    await log.create(TOPIC, 1)
    await log.append(TOPIC, [a_draft(f"{n}") for n in range(10)])
    monkeypatch.setattr(engine, "read", None)

    found = await log.read(TOPIC, QUEUE, 3, 4, LARGE)
    behind = await log.read(TOPIC, QUEUE, 10, 4, LARGE)

    assert [each.body for each in found] == [b"3", b"4", b"5", b"6"]
    assert behind == ()


def a_random_draft(source: random.Random) -> Draft:
    return a_draft(
        source.randbytes(source.choice([1, 30, 900])),
        queue=source.choice([None, 0, 1, 2]),
        key=source.choice([None, "", "ключ"]),
        tag=source.choice([None, "a\x00b"]),
        properties=source.choice([{}, {"ü": "\x01\n"}]),
    )


@pytest.mark.parametrize("seed", range(8))
async def test_reads_equal_the_database_under_random_operations(engine: Engine, clock: ManualClock, seed: int) -> None:
    """Whatever is appended, expired, deleted or created again, memory and database must agree."""
    source = random.Random(seed)
    log = SqliteMessageLog(engine, max_tail_bytes=20_000)
    retention = SqliteRetention(engine, log)
    await log.create(TOPIC, 3)
    in_memory = 0

    for _ in range(150):
        action = source.random()
        if action < 0.6:
            batches = [[a_random_draft(source) for _ in range(source.randint(1, 8))] for _ in range(3)]
            await asyncio.gather(*(log.append(TOPIC, batch) for batch in batches))
            clock.advance(source.choice([0, 1, 60]))
        elif action < 0.75:
            await retention.delete_older(TOPIC, timedelta(seconds=source.choice([5, 120])))
        elif action < 0.8:
            await retention.delete_excess(TOPIC, source.choice([1_000, 30_000]))
        elif action < 0.82:
            await log.drop(TOPIC)
            await log.create(TOPIC, 3)
        for state in log.queues_of(TOPIC):
            offset = source.randint(max(state.bounds.min - 2, 0), state.bounds.max + 1)
            limits = source.choice([1, 5, 50]), source.choice([1, 900, 5_000, LARGE])
            in_memory += state.tail.read(offset, *limits) is not None
            found = await log.read(TOPIC, state.name, offset, *limits)
            assert list(found) == await stored(engine, log, state.name, offset, *limits)
            assert state.tail.first >= state.bounds.min
        assert log.tail.size_bytes <= 20_000
        assert log.tail.count == sum(len(state.tail.rows) for state in log.queues_of(TOPIC))

    assert 50 < in_memory < 400


async def test_a_message_that_was_not_committed_is_not_in_memory(open_engine: OpenEngine) -> None:
    """A full disk refuses the append, and the next one gets its offset."""
    engine = open_engine(max_bytes=MIB)
    log = SqliteMessageLog(engine)
    await log.create(TOPIC, 1)
    appends = [log.append(TOPIC, [a_draft(b"x" * 2_000)] * 10) for _ in range(100)]
    outcomes = [await asyncio.gather(append, return_exceptions=True) for append in appends]

    count = 10 * sum(isinstance(outcome, list) for (outcome,) in outcomes)
    (state,) = log.queues_of(TOPIC)

    assert {type(outcome) for (outcome,) in outcomes} == {list, StorageFull}

    assert state.tail.first + len(state.tail.rows) == state.bounds.max == count
    assert len(await log.read(TOPIC, QUEUE, 0, 10_000, LARGE)) == count
    assert await log.read(TOPIC, QUEUE, count, 1, LARGE) == ()


async def test_one_limit_covers_all_queues(engine: Engine) -> None:
    """With a limit per queue, the memory would grow with the number of topics."""
    log = SqliteMessageLog(engine, max_tail_bytes=100_000)
    for number in range(20):
        await log.create(f"topic-{number}", 8)
        await log.append(f"topic-{number}", [a_draft(b"x" * 1_000) for _ in range(40)])

    sizes = [len(state.tail.rows) for number in range(20) for state in log.queues_of(f"topic-{number}")]

    assert 90_000 < log.tail.size_bytes <= 100_000
    assert sum(sizes) == log.tail.count == 71
    assert sum(sizes[-8:]) == 40


async def test_a_deleted_topic_leaves_nothing_in_memory(engine: Engine) -> None:
    """Topics may be created and deleted for as long as the process runs."""
    log = SqliteMessageLog(engine, max_tail_bytes=100_000)
    for _ in range(20):
        await log.create(TOPIC, 2)
        await log.append(TOPIC, [a_draft() for _ in range(100)])
        await log.drop(TOPIC)

    assert (log.tail.size_bytes, log.tail.count) == (0, 0)
    assert len(log.tail._order) <= 100_000 // 400


async def test_a_message_larger_than_the_limit_is_read_from_the_database(engine: Engine) -> None:
    """The limit must hold, and every message must stay readable."""
    log = SqliteMessageLog(engine, max_tail_bytes=10_000)
    await log.create(TOPIC, 1)
    drafts = [a_draft(b"x" * size) for size in (100, 20_000, 100, 100)]
    await log.append(TOPIC, drafts)

    found = await log.read(TOPIC, QUEUE, 0, 10, LARGE)

    assert [each.body for each in found] == [draft.body for draft in drafts]
    assert log.tail.count == 2


async def test_expired_messages_do_not_displace_newer_ones(engine: Engine, clock: ManualClock) -> None:
    """Retention removes rows before their turn. Their turn must not remove other rows of the queue."""
    log = SqliteMessageLog(engine, max_tail_bytes=100_000)
    await log.create(TOPIC, 1)
    await log.append(TOPIC, [a_draft(b"x" * 1_000) for _ in range(60)])
    clock.advance(60)
    await SqliteRetention(engine, log).delete_older(TOPIC, timedelta(seconds=1))

    for _ in range(200):
        await log.append(TOPIC, [a_draft()])

    (state,) = log.queues_of(TOPIC)
    assert log.tail.count == len(state.tail.rows) == 200
