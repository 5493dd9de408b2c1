"""The embedded engine: its lock, schema and clock, a full disk, and truncated files."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.registry_store import SqliteRegistryStore
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.retention import Retention
from mqgate.core.entries import Mode
from mqgate.core.errors import StorageFull, StorageUnavailable
from mqgate.ports.registry_store import AuditEntry
from mqgate.sql_files import schema_files
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.leasing import ack, granted, nack, opened
from mqgate.testing.samples import a_draft, a_group, a_topic, queues

OpenEngine = Callable[..., Engine]
MIB = 1 << 20

WRITER = """
import asyncio, pathlib, sys
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.testing.samples import a_draft

async def main():
    log = SqliteMessageLog(Engine(pathlib.Path(sys.argv[1])))
    await log.create("orders", 2)
    for number in range(40):
        await log.append("orders", [a_draft(f"{number}", queue=number)])
    print("written", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def loaded(engine: Engine) -> SqliteMessageLog:
    log = SqliteMessageLog(engine)
    await log.load()
    return log


async def test_a_second_engine_on_the_same_directory_is_refused(engine: Engine, tmp_path: Path) -> None:
    """Two writers with different next offsets would overwrite messages."""
    with pytest.raises(StorageUnavailable, match="Another mqgate"):
        Engine(tmp_path / "data")


async def test_a_second_process_on_the_same_directory_is_refused(engine: Engine, tmp_path: Path) -> None:
    """The error names the remedy."""
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(tmp_path / "data"), stderr=asyncio.subprocess.PIPE
    )

    _, errors = await second.communicate()

    assert second.returncode != 0
    assert b"StorageUnavailable" in errors
    assert b"--data-dir" in errors


async def test_a_closed_directory_can_be_opened_again(engine: Engine, open_engine: OpenEngine) -> None:
    """Closing releases the lock, and can be repeated."""
    await engine.close()
    await engine.close()

    again = open_engine()

    await again.probe()


async def test_a_directory_of_a_newer_release_is_refused(
    engine: Engine, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """An old program must not write to tables that it does not know."""
    await engine.close()
    connection = apsw.Connection(str(engine.path))
    connection.execute("PRAGMA user_version = 1000")
    connection.close()

    with pytest.raises(StorageUnavailable, match="newer mqgate"):
        open_engine()


def _remove_later_schemas(connection: apsw.Connection) -> None:
    """Remove the tables, indexes and columns that the first schema does not have."""
    added = {"message_failed": "lapsed", "queue_lease": "returned", "message_grant": "returned", "timer": "producer"}
    for table, column in added.items():
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    first = schema_files("mqgate.adapters.sqlite")[0].sql
    for kind, name in connection.execute("SELECT type, name FROM sqlite_schema ORDER BY type").fetchall():
        if name not in first and not name.startswith("sqlite_"):
            connection.execute(f"DROP {kind} IF EXISTS {name}")


async def test_a_directory_of_the_first_release_is_migrated(
    engine: Engine, open_engine: OpenEngine, clock: ManualClock
) -> None:
    """Leases continue: here, the row of a failed message lacks the columns of later releases."""
    group = a_group(mode=Mode.MESSAGE)
    before = SqliteLeaseStore(engine)
    await opened(before, group, queues(1))
    await nack(before, group, (await granted(before, group)).lease)
    await engine.close()
    with apsw.Connection(str(engine.path)) as connection:
        _remove_later_schemas(connection)
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    after = SqliteLeaseStore(open_engine())
    again = await granted(after, group)
    clock.advance(group.visibility)

    assert (again.delivery, again.lease_expired) == (2, 0)
    assert (await granted(after, group)).lease_expired == 1


async def test_the_clock_never_goes_back_over_a_restart(
    engine: Engine, open_engine: OpenEngine, clock: ManualClock
) -> None:
    """A machine that starts with an earlier time must not revive leases or store messages in the past."""
    log = await loaded(engine)
    await log.create("orders", 1)
    # The append is the only transaction of this second.
    clock.advance(1)
    (before,) = await log.append("orders", [a_draft()])
    await engine.close()
    clock.advance(-timedelta(days=1))

    log = await loaded(open_engine())
    (after,) = await log.append("orders", [a_draft()])
    clock.advance(timedelta(days=1, seconds=5))
    (later,) = await log.append("orders", [a_draft()])

    assert after.stored_at == before.stored_at
    assert later.stored_at == before.stored_at + timedelta(seconds=5)


async def test_the_clock_never_goes_back_while_running(engine: Engine, clock: ManualClock) -> None:
    """If the wall clock is set back, leases may last longer but never shorter."""
    leases, group = SqliteLeaseStore(engine), a_group()
    await opened(leases, group, queues(5))
    clock.advance(60)
    grant = await granted(leases, group)

    clock.advance(-3600)
    await ack(leases, group, grant.lease)
    following = await granted(leases, group, bounds=queues(50))

    assert following.leased_until == grant.leased_until


async def test_a_failing_job_does_not_affect_other_jobs(engine: Engine) -> None:
    """Jobs that share a transaction are independent."""

    def fails(_: object) -> None:
        raise ValueError("only this job")

    log = await loaded(engine)
    await log.create("orders", 1)

    outcomes = await asyncio.gather(
        *(
            engine.write(fails) if number % 3 == 0 else log.append("orders", [a_draft(f"{number}")])
            for number in range(30)
        ),
        return_exceptions=True,
    )

    assert [isinstance(each, ValueError) for each in outcomes] == [number % 3 == 0 for number in range(30)]
    found = await log.read("orders", "local:0", 0, 100, MIB)
    assert [each.offset for each in found] == list(range(20))


class Full:
    """A small store that is filled with messages until an append fails."""

    def __init__(self, engine: Engine) -> None:
        self.log = SqliteMessageLog(engine)
        self.registry = SqliteRegistryStore(engine)
        self.directory = CachedDirectory(self.registry)
        self.leases = SqliteLeaseStore(engine)
        self.retention = Retention(SqliteRetention(engine, self.log), self.directory)
        self.stored = 0

    async def register(self, **limits: object) -> None:
        await self.log.create("orders", 1)
        act = AuditEntry(at=NOON, actor="test", action="create", subject="topic", reason=None, details="{}")
        entry = a_topic(queues=1, **limits)
        await self.registry.save(entry, act, decided_on=await self.registry.version())
        await self.directory.refresh()

    async def fill(self) -> None:
        for _ in range(10_000):
            try:
                await self.log.append("orders", [a_draft(b"x" * 2_000)])
            except StorageFull:
                return
            self.stored += 1
        pytest.fail("the store was never full")


async def test_a_full_disk_refuses_publishes_and_loses_nothing(open_engine: OpenEngine) -> None:
    """Accepted messages are stored, refused ones are not, and reads continue."""
    full = Full(open_engine(max_bytes=MIB))
    await full.register()

    await full.fill()

    found = await full.log.read("orders", "local:0", 0, 10_000, 1 << 30)
    assert [each.offset for each in found] == list(range(full.stored))
    assert (await full.log.bounds("orders")).queues == queues(full.stored)
    assert await full.log.find("orders", found[-1].id) == found[-1]
    with pytest.raises(StorageFull):
        await full.log.append("orders", [a_draft(b"x" * 2_000)])


async def test_a_batch_that_does_not_fit_stores_nothing(open_engine: OpenEngine) -> None:
    """A publisher repeats a refused batch, so no part of it may be stored."""
    full = Full(open_engine(max_bytes=MIB))
    await full.register()

    with pytest.raises(StorageFull):
        await full.log.append("orders", [a_draft(b"x" * 2_000)] * 1_000)

    assert (await full.log.bounds("orders")).queues == queues(0)
    assert [each.offset for each in await full.log.append("orders", [a_draft()])] == [0]


async def test_freed_space_is_used_without_a_restart(open_engine: OpenEngine, clock: ManualClock) -> None:
    """After retention has deleted messages, publishes continue at the next offset."""
    full = Full(open_engine(max_bytes=MIB))
    await full.register(retention=timedelta(minutes=10))
    await full.fill()
    clock.advance(timedelta(minutes=11))

    deleted = await full.retention.run_once()
    kept = [await full.log.append("orders", [a_draft(b"x" * 2_000)]) for _ in range(full.stored // 2)]

    assert deleted == full.stored
    assert [each[0].offset for each in kept] == list(range(full.stored, full.stored + len(kept)))


async def test_a_larger_limit_is_used_after_a_restart(open_engine: OpenEngine) -> None:
    """The limit is a setting and is not stored in the file."""
    small = open_engine(max_bytes=MIB)
    full = Full(small)
    await full.register()
    await full.fill()
    await small.close()

    log = await loaded(open_engine(max_bytes=4 * MIB))

    assert [each.offset for each in await log.append("orders", [a_draft(b"x" * 2_000)])] == [full.stored]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose process was killed after 40 successful appends. The newest ones are only in the WAL."""
    directory = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", WRITER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"written\n"
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    return directory


@pytest.mark.parametrize("torn", [0, 1, 100, 4_096, 4_120, 10_000, 40_000, 10**9])
async def test_a_truncated_wal_loses_only_the_truncated_commits(killed: Path, tmp_path: Path, torn: int) -> None:
    """The remaining messages are the first ones, without gaps, and appends continue after them."""
    shutil.copytree(killed, tmp_path / "data")
    wal = tmp_path / "data" / "mqgate.db-wal"
    size = wal.stat().st_size
    with wal.open("r+b") as file:
        file.truncate(max(size - torn, 0))
    engine = Engine(tmp_path / "data")
    log = await loaded(engine)
    if not torn:
        assert len((await log.bounds("orders")).queues) == 2

    bodies: dict[str, list[bytes]] = {}
    if log.topics():
        for queue, head in (await log.bounds("orders")).queues.items():
            found = await log.read("orders", queue, 0, 100, MIB)
            assert [each.offset for each in found] == list(range(head.max))
            bodies[queue] = [each.body for each in found]
            stored = await log.append("orders", [a_draft(queue=int(queue[-1]))])
            assert stored[0].offset == head.max
    await engine.close()

    count = sum(map(len, bodies.values()))
    whole = [[f"{n}".encode() for n in range(first, count, 2)] for first in (0, 1)]
    assert [bodies.get("local:0", []), bodies.get("local:1", [])] == whole
    assert count == 40 if torn == 0 else count < 40
    assert count >= (39 if torn <= 4_120 else 0)
