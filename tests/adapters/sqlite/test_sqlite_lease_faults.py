"""Lease steps whose commit fails or never happens: nothing that was returned is lost, and nothing is granted twice."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import lease_crash
import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import StorageFull, StorageUnavailable
from mqgate.core.lease import SettlementOutcome
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ack, ask, granted, opened, position
from mqgate.testing.samples import a_draft, a_group, queues

Place = tuple[str, int]


@pytest.fixture(params=[Mode.QUEUE, Mode.MESSAGE])
def group(request: pytest.FixtureRequest) -> Group:
    return a_group(mode=request.param)


class FailingCommits:
    """Lets every commit of the engine fail while it is open."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine._writer._connection

    def __enter__(self) -> None:
        self._connection.set_commit_hook(lambda: True)

    def __exit__(self, *_: object) -> None:
        self._connection.set_commit_hook(None)


async def test_a_grant_whose_commit_fails_was_never_granted(engine: Engine, group: Group) -> None:
    """The caller got an error, so the messages are ready at once, and the delivery does not count."""
    store = SqliteLeaseStore(engine)
    await opened(store, group, queues(2))

    with FailingCommits(engine), pytest.raises(StorageUnavailable):
        await ask(store, group)
    after = await granted(store, group)

    assert (after.lease.start, after.lease.next, after.delivery) == (0, 2, 1)


async def test_a_settlement_whose_commit_fails_is_not_applied(engine: Engine, group: Group) -> None:
    """A repeat must be applied, not reported as a duplicate of something that is not stored."""
    store = SqliteLeaseStore(engine)
    await opened(store, group, queues(1))
    lease = (await granted(store, group)).lease

    with FailingCommits(engine), pytest.raises(StorageUnavailable):
        await ack(store, group, lease)

    assert (await position(store, group)).committed == 0
    assert await ack(store, group, lease) is SettlementOutcome.APPLIED


async def test_every_step_decided_on_a_failed_one_fails(engine: Engine, group: Group) -> None:
    """A step that was decided while the commit was in flight saw leases that do not exist."""
    store = SqliteLeaseStore(engine)
    await opened(store, group, queues(2))

    with FailingCommits(engine):
        first = asyncio.ensure_future(ask(store, group, max_count=2))
        for _ in range(3):
            await asyncio.sleep(0)
        others = [asyncio.ensure_future(ask(store, group)) for _ in range(3)]
        results = await asyncio.gather(first, *others, return_exceptions=True)

    assert [type(result) for result in results] == [StorageUnavailable] * 4
    assert (await granted(store, group)).delivery == 1


async def test_a_failed_publish_in_the_same_commit_fails_no_lease_step(engine: Engine, group: Group) -> None:
    """They share a commit only to share its cost."""
    store = SqliteLeaseStore(engine)
    await opened(store, group, queues(2))

    def fail(_: object) -> None:
        raise ValueError("mine alone")

    failed, acquired = await asyncio.gather(engine.write(fail), ask(store, group), return_exceptions=True)

    assert isinstance(failed, ValueError)
    assert not isinstance(acquired, BaseException)
    assert len(acquired.grants) == 1
    assert not (await ask(store, group)).grants


async def test_a_full_disk_grants_nothing_twice_and_loses_no_ack(
    engine: Engine, group: Group, clock: ManualClock
) -> None:
    """While the disk is full, steps are refused or stored, and both are final."""
    store, log = SqliteLeaseStore(engine), SqliteMessageLog(engine)
    await log.load()
    await log.create("orders", 1)
    bounds = queues(*[200] * 4)
    await opened(store, group, bounds)
    held = (await granted(store, group, max_count=1)).lease
    engine._writer._connection.execute("PRAGMA max_page_count = 1")
    await _fill(log)
    delivered: list[Place] = []
    acked: list[Place] = []
    refused = 0

    for _ in range(300):
        try:
            grant = (await ask(store, group, max_count=1)).grants[0]
        except StorageFull:
            refused += 1
            continue
        except IndexError:
            break
        delivered.append((grant.lease.queue, grant.lease.start))
        try:
            if await ack(store, group, grant.lease) is SettlementOutcome.APPLIED:
                acked.append(delivered[-1])
        except StorageFull:
            refused += 1
    engine._writer._connection.execute("PRAGMA max_page_count = 1000000")

    assert refused
    assert len(delivered) == len(set(delivered))
    assert (held.queue, held.start) not in delivered
    clock.advance(timedelta(hours=1))
    again = [
        (grant.lease.queue, offset)
        for _ in bounds
        for grant in (await ask(store, group, max_count=1_000)).grants
        for offset in range(grant.lease.start, grant.lease.next)
    ]
    assert not set(again) & set(acked)
    assert set(again) | set(acked) == {(queue, offset) for queue in bounds for offset in range(200)}


async def _fill(log: SqliteMessageLog) -> None:
    for _ in range(1_000):
        try:
            await log.append("orders", [a_draft(b"x" * 100)])
        except StorageFull:
            return
    pytest.fail("the store was never full")


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])
async def test_a_kill_at_any_statement_loses_nothing_that_was_returned(tmp_path: Path, mode: Mode) -> None:
    """Between a decision in memory and its commit, at each statement: acks stay, leases hold, the rest is ready."""
    command = [sys.executable, lease_crash.__file__, str(tmp_path), mode]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=300)

    runs = lease_crash.runs_in(tmp_path)
    assert len(runs) > 30
    for run in runs:
        await _check(run, lease_crash.group_of(mode))


async def _check(directory: Path, group: Group) -> None:
    returned: dict[str, set[Place]] = {"granted": set(), "acked": set(), "nacked": set()}
    for line in lease_crash.read_notes(directory):
        what, queue, start, after = json.loads(line)
        returned[what] |= {(queue, offset) for offset in range(start, after)}
    clock = ManualClock()
    engine = Engine(directory, synchronous="normal", wall_ms=clock)
    store = SqliteLeaseStore(engine)
    everything = queues(*[lease_crash.MESSAGES] * lease_crash.QUEUES)
    await opened(store, group, everything)

    at_once = await _drain(store, group)
    clock.advance(timedelta(hours=2))
    later = await _drain(store, group)
    await engine.close()

    assert not at_once & returned["granted"], directory
    assert not (at_once | later) & returned["acked"], directory
    missing = {(queue, offset) for queue, each in everything.items() for offset in range(each.max)} - at_once - later
    # The response to the last acks may have been lost.
    assert missing >= returned["acked"]
    assert missing <= returned["acked"] | returned["granted"], directory


async def _drain(store: SqliteLeaseStore, group: Group) -> set[Place]:
    """Receive and ack all that is ready."""
    found: set[Place] = set()
    while grants := (await ask(store, group, max_count=3)).grants:
        for grant in grants:
            offsets = range(grant.lease.start, grant.lease.next)
            found |= {(grant.lease.queue, offset) for offset in offsets}
            if group.mode is Mode.QUEUE:
                await ack(store, group, grant.lease)
                continue
            for offset in offsets:
                await ack(store, group, grant.lease._replace(start=offset, next=offset + 1))
    return found
