"""Control data and dead letters that several gateways use."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from mqgate.adapters.postgres import dead_letters, registry_store
from mqgate.adapters.postgres.database import Database, Transaction
from mqgate.adapters.postgres.dead_letters import PostgresDeadLetters
from mqgate.adapters.postgres.registry_store import PostgresRegistryStore
from mqgate.core.errors import RegistryChanged
from mqgate.core.message import Message, milliseconds
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.ports.dead_letters import DeadLetter
from mqgate.ports.registry_store import AuditEntry
from mqgate.testing.clock import NOON
from mqgate.testing.samples import a_topic

OpenDatabase = Callable[..., Awaitable[Database]]
ACT = AuditEntry(at=NOON, actor="ada", action="create", subject="topic", reason=None, details="{}")


@pytest.fixture
async def databases(open_database: OpenDatabase) -> tuple[Database, Database]:
    return await open_database(), await open_database()


def letter(offset: int, **changes: object) -> DeadLetter:
    message = Message(f"{offset:032x}", "orders", "local:0", offset, b"body", None, None, {}, milliseconds(NOON))
    return DeadLetter(
        group="workers",
        client="",
        message=message._replace(**changes),
        deliveries=3,
        first_at=NOON,
        last_at=NOON,
        reason=None,
    )


async def test_concurrent_changes_are_neither_lost_nor_half_applied(
    databases: tuple[Database, Database],
) -> None:
    """The second of two changes must read again. Entry, audit entry and version change together."""
    stores = [PostgresRegistryStore(database) for database in databases]
    await stores[0].save(a_topic(queues=0), ACT, decided_on=0)
    seen: list[tuple[int, int]] = []

    async def add_queue(number: int) -> None:
        store = stores[number % 2]
        while True:
            before = await store.load()
            topic = before.topics["orders"]
            seen.append((before.version, topic.queues))
            try:
                await store.save(
                    replace(topic, queues=topic.queues + 1),
                    replace(ACT, subject=str(topic.queues + 1)),
                    decided_on=before.version,
                )
            except RegistryChanged:
                continue
            return

    await asyncio.gather(*(add_queue(number) for number in range(20)))

    after = await stores[1].load()
    assert (after.topics["orders"].queues, after.version) == (20, 21)
    assert all(version == queues + 1 for version, queues in seen)
    acts, _ = await stores[0].audit_entries(100, None)
    assert [act.subject for act in acts] == [*(str(number) for number in range(20, 0, -1)), "topic"]


async def test_a_change_raises_the_version_that_other_gateways_read(databases: tuple[Database, Database]) -> None:
    """A gateway compares the version to detect that its directory is outdated."""
    one, other = (PostgresRegistryStore(database) for database in databases)
    before = await other.version()

    await one.save(a_topic(), ACT, decided_on=before)

    assert await other.version() == before + 1
    assert (await other.load()).topics == {"orders": a_topic()}


async def test_concurrent_starts_create_one_receipt_key(open_database: OpenDatabase) -> None:
    """Otherwise a gateway would refuse the receipts of another."""
    stores = [PostgresRegistryStore(await open_database(max_size=2)) for _ in range(5)]

    found = await asyncio.gather(*(store.receipt_keys(KeyRotationPolicy()) for store in stores * 3))

    assert len(found[0].accepted) == 1
    assert all(keys == found[0] for keys in found)


async def in_order(database: Database, sql: bytes, values: dict[str, object], later: Awaitable[None]) -> None:
    """Run a statement with a slow commit, and another one that must not overtake it."""

    async def job(transaction: Transaction) -> asyncio.Future[None]:
        await transaction.rows(sql, values)
        overtaking = asyncio.ensure_future(later)
        done, _ = await asyncio.wait({overtaking}, timeout=0.3)
        assert not done
        return overtaking

    await (await database.transact(job))


@pytest.mark.parametrize("is_change", [False, True], ids=["record", "change"])
async def test_paging_through_audit_entries_misses_none(databases: tuple[Database, Database], is_change: bool) -> None:
    """A later number must never be visible before an earlier one: entries are numbered in commit order."""
    one, other = (PostgresRegistryStore(database) for database in databases)
    second = replace(ACT, subject="second", reason="a\0b")
    later = other.save(a_topic(), second, decided_on=0) if is_change else other.record(second)

    await in_order(databases[0], registry_store._SQL["record"], registry_store._columns(ACT), later)

    assert (await one.audit_entries(10, None))[0] == [second, ACT]


async def test_a_dead_letter_of_several_gateways_is_stored_once(databases: tuple[Database, Database]) -> None:
    """Invariant 17: two gateways may write the same dead letter."""
    one, other = (PostgresDeadLetters(database) for database in databases)

    await asyncio.gather(*((one, other)[turn % 2].record(letter(turn // 10)) for turn in range(100)))

    found, more = await one.list("workers", key=None, since=None, until=None, limit=100, after=None)
    assert sorted(letter.message.offset for letter in found) == list(range(10))
    assert more is None


async def test_paging_through_dead_letters_misses_no_new_one(databases: tuple[Database, Database]) -> None:
    """A lower number must never become visible after a higher one."""
    one, other = (PostgresDeadLetters(database) for database in databases)
    values = dead_letters._columns(letter(1))

    await in_order(databases[0], dead_letters._SQL["record"], values, other.record(letter(2)))

    found, _ = await one.list("workers", key=None, since=None, until=None, limit=9, after=None)
    assert [letter.message.offset for letter in found] == [1, 2]


async def test_dead_letters_of_different_groups_do_not_block_each_other(databases: tuple[Database, Database]) -> None:
    """Only dead letters of the same group need an order."""
    one, other = (PostgresDeadLetters(database) for database in databases)

    async def job(transaction: Transaction) -> None:
        await transaction.rows(dead_letters._SQL["record"], dead_letters._columns(letter(1)))
        await other.record(replace(letter(2), group="others"))

    await databases[0].transact(job)

    assert len(await one.get("others", f"{2:032x}")) == 1


async def test_a_dead_letter_is_found_by_a_key_of_any_length(databases: tuple[Database, Database]) -> None:
    """A key can have 30 KiB, more than an index entry. Keys with the same beginning must be distinguished."""
    one, other = (PostgresDeadLetters(database) for database in databases)
    keys = ["k" * 30_000, "k" * 29_999, "a\0b", "a\\0b"]
    for offset, key in enumerate(keys):
        await one.record(letter(offset, key=key, tag=key[:10]))

    found = [await other.list("workers", key=key, since=None, until=None, limit=9, after=None) for key in keys]

    assert [[letter.message.key for letter in page] for page, _ in found] == [[key] for key in keys]
    assert await other.get("workers", "a\0b") == []


async def test_a_reason_may_contain_anything(databases: tuple[Database, Database]) -> None:
    """Clients send stack traces as reasons."""
    one, other = (PostgresDeadLetters(database) for database in databases)
    stored = replace(letter(1), reason="C:\\new\0\n\\0", last_at=NOON + timedelta(microseconds=1))

    await one.record(stored)

    assert await other.get("workers", f"{1:032x}") == [stored]


async def test_deleting_a_group_deletes_all_of_its_dead_letters(databases: tuple[Database, Database]) -> None:
    """There may be more of them than one statement deletes."""
    one, other = databases
    await one.write(
        b"INSERT INTO dead_letter (group_name, client, id, topic, queue, queue_offset, body, stored_at, deliveries, "
        b"first_at, last_at) SELECT 'workers', '', n, 't', 'q', n, '', now(), 1, now(), now() "
        b"FROM generate_series(1, 4500) AS n"
    )

    await PostgresDeadLetters(other).forget("workers")

    assert await one.read(b"SELECT count(*) FROM dead_letter") == [(0,)]
