"""Retention on the embedded engine: messages by age and size, settled receipts by age and number."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.registry_store import SqliteRegistryStore
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.retention import Retention
from mqgate.core.lease import MEMORY, MIN_REMEMBERED, Lease, Settlement, SettlementOutcome, Verb
from mqgate.ports.registry_store import AuditEntry
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.leasing import ack, ask, opened
from mqgate.testing.samples import a_draft, a_group, a_topic, queues

OpenEngine = Callable[..., Engine]
ACT = AuditEntry(at=NOON, actor="test", action="create", subject="topic", reason=None, details="{}")


class Store:
    """A log with its retention, and a registry with the limits of its topics."""

    def __init__(self, engine: Engine) -> None:
        self.log = SqliteMessageLog(engine)
        self.leases = SqliteLeaseStore(engine)
        self.registry = SqliteRegistryStore(engine)
        self.directory = CachedDirectory(self.registry)
        self.retention = Retention(SqliteRetention(engine, self.log), self.directory)

    async def register(self, topic: str, queues: int, **limits: object) -> None:
        await self.log.create(topic, queues)
        entry = a_topic(name=topic, queues=queues, **limits)
        await self.registry.save(entry, ACT, decided_on=await self.registry.version())
        await self.directory.refresh()

    async def kept(self, topic: str = "orders") -> dict[str, tuple[int, int]]:
        """Return the bounds of the queues, after checking that exactly the messages between them exist."""
        bounds = (await self.log.bounds(topic)).queues
        for queue, (first, end) in bounds.items():
            found = await self.log.read(topic, queue, first, 100_000, 1 << 40)
            assert [each.offset for each in found] == list(range(first, end))
            if first:
                assert not await self.log.read(topic, queue, first - 1, 10, 1 << 20)
        return {queue: (head.min, head.max) for queue, head in bounds.items()}


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


async def test_messages_older_than_the_retention_are_deleted(store: Store, clock: ManualClock) -> None:
    """Each message is deleted by its own age."""
    await store.register("orders", 2, retention=timedelta(minutes=10))
    await store.log.append("orders", [a_draft(queue=0)] * 3)
    clock.advance(60)
    await store.log.append("orders", [a_draft(queue=0), a_draft(queue=1)])

    clock.advance(timedelta(minutes=9))
    young = await store.retention.run_once()
    clock.advance(0.001)
    old = await store.retention.run_once()

    assert (young, old) == (0, 3)
    assert await store.kept() == {"local:0": (3, 4), "local:1": (0, 1)}


async def test_an_emptied_queue_continues_at_its_next_offset(store: Store, clock: ManualClock) -> None:
    """Invariant 3: retention does not reset offsets."""
    await store.register("orders", 1, retention=timedelta(minutes=10))
    await store.log.append("orders", [a_draft()] * 3)
    clock.advance(timedelta(days=1))
    await store.retention.run_once()

    (stored,) = await store.log.append("orders", [a_draft()])

    assert stored.offset == 3
    assert await store.kept() == {"local:0": (3, 4)}


async def test_a_long_queue_is_deleted_in_several_transactions(store: Store, clock: ManualClock) -> None:
    """A run with several chunks must delete exactly the old messages."""
    await store.register("orders", 1, retention=timedelta(minutes=10))
    for _ in range(5):
        await store.log.append("orders", [a_draft()] * 1_000)
    clock.advance(timedelta(minutes=11))
    await store.log.append("orders", [a_draft()] * 7)

    deleted = await store.retention.run_once()

    assert deleted == 5_000
    assert await store.kept() == {"local:0": (5_000, 5_007)}


async def test_a_topic_above_its_limit_loses_its_oldest_messages(store: Store) -> None:
    """Afterwards the topic is below the limit, and only a few more messages than necessary are deleted."""
    await store.register("orders", 2, retention_bytes=10_000)
    await store.log.append("orders", [a_draft(b"x" * 100, queue=n) for n in range(300)])

    deleted = await store.retention.run_once()

    kept = await store.kept()
    left = sum(end - first for first, end in kept.values())
    assert left + deleted == 300
    assert 90 <= left <= 100
    assert all(end == 150 for _, end in kept.values())


async def test_messages_within_the_limits_are_kept(store: Store, clock: ManualClock) -> None:
    """A topic without limits keeps all messages."""
    await store.register("orders", 1, retention_bytes=300)
    await store.register("archive", 1)
    await store.log.append("orders", [a_draft(b"x" * 100)] * 3)
    await store.log.append("archive", [a_draft(b"x" * 100)] * 3)
    clock.advance(timedelta(days=3_650))

    deleted = await store.retention.run_once()

    assert deleted == 0
    assert await store.kept("archive") == {"local:0": (0, 3)}


async def test_deleted_messages_stay_deleted_after_a_restart(
    store: Store, clock: ManualClock, reopen_engine: object
) -> None:
    """The min offset is stored."""
    await store.register("orders", 1, retention=timedelta(minutes=10))
    await store.log.append("orders", [a_draft()] * 3)
    clock.advance(timedelta(hours=1))
    await store.log.append("orders", [a_draft()])
    await store.retention.run_once()

    again = Store(await reopen_engine())  # type: ignore[operator]
    await again.log.load()

    assert await again.kept() == {"local:0": (3, 4)}


async def test_a_search_by_time_is_correct_after_retention(store: Store, clock: ManualClock) -> None:
    """The binary search must handle deleted messages."""
    await store.register("orders", 1, retention=timedelta(minutes=10))
    for _ in range(20):
        await store.log.append("orders", [a_draft()])
        clock.advance(60)
    await store.retention.run_once()

    at_first = await store.log.offsets_at("orders", NOON)
    at_fifteen = await store.log.offsets_at("orders", NOON + timedelta(minutes=15))

    assert await store.kept() == {"local:0": (10, 20)}
    assert (at_first, at_fifteen) == ({"local:0": 10}, {"local:0": 15})


async def test_old_settled_receipts_are_deleted_except_the_newest_ten_thousand(
    store: Store, clock: ManualClock
) -> None:
    """Storage is bounded, and an unknown receipt is `gone`, not `lost` or `applied`."""
    group, wide = a_group(), 100
    await opened(store.leases, group, queues(*[1_000] * wide))
    spent: list[Lease] = []
    for _ in range(MIN_REMEMBERED // wide + 1):
        asked = await asyncio.gather(*(ask(store.leases, group, max_count=1) for _ in range(wide)))
        leases = [each.grants[0].lease for each in asked]
        await store.leases.settle(group, [Settlement(verb=Verb.ACK, lease=lease) for lease in leases])
        spent += leases
    clock.advance(MEMORY)
    await store.leases.tidy()
    just_in_time = await ack(store.leases, group, spent[0])

    clock.advance(0.001)
    await store.leases.tidy()

    assert len(spent) == MIN_REMEMBERED + wide
    assert just_in_time is SettlementOutcome.DUPLICATE
    assert [await ack(store.leases, group, lease) for lease in spent[:wide]] == [SettlementOutcome.GONE] * wide
    assert await ack(store.leases, group, spent[wide]) is SettlementOutcome.DUPLICATE
    assert await ack(store.leases, group, spent[-1]) is SettlementOutcome.DUPLICATE


async def restarted(engine: Engine, open_engine: OpenEngine) -> tuple[Store, Engine]:
    """Return the store after a restart, opened as a gateway does."""
    await engine.close()
    again = open_engine()
    store = Store(again)
    await store.log.load()
    await store.directory.refresh()
    return store, again


async def test_offsets_continue_after_any_order_of_restarts_and_retention(
    engine: Engine, open_engine: OpenEngine, clock: ManualClock
) -> None:
    """After a publish, restart, retention and restart, the queue is empty and has the same max offset."""
    store = Store(engine)
    await store.register("orders", 2, retention=timedelta(minutes=10))
    await store.log.append("orders", [a_draft(queue=0), a_draft(queue=1), a_draft(queue=1)])
    store, engine = await restarted(engine, open_engine)
    clock.advance(timedelta(minutes=11))
    await store.retention.run_once()

    store, _ = await restarted(engine, open_engine)

    assert await store.kept() == {"local:0": (1, 1), "local:1": (2, 2)}
    stored = await store.log.append("orders", [a_draft(queue=0), a_draft(queue=1)])
    assert [each.offset for each in stored] == [1, 2]


async def test_retention_by_size_includes_messages_from_before_a_restart(
    engine: Engine, open_engine: OpenEngine
) -> None:
    """Otherwise a topic could exceed its limit after each restart."""
    store = Store(engine)
    await store.register("orders", 1, retention_bytes=1_000)
    await store.log.append("orders", [a_draft(b"x" * 100)] * 30)

    store, _ = await restarted(engine, open_engine)
    await store.retention.run_once()

    assert await store.kept() == {"local:0": (20, 30)}
