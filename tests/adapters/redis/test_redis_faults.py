"""What happens when Redis is away, silent, full, not ours or not the right one: one error and one retry rule each."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from eventually import until
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.server import Server
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import StorageUnavailable
from mqgate.core.lease import Grant, PullReport, SettlementOutcome
from mqgate.stack import Stack
from mqgate.stack.free_ports import free_port
from mqgate.testing.leasing import QUEUE, ack, ask, granted, opened, position, positions
from mqgate.testing.message_leasing import workers
from mqgate.testing.samples import a_group, queues
from redis_server import operator
from wire import Wire

QUICK = 1.0
MODES = pytest.mark.parametrize("group", [a_group(), workers()], ids=["queue", "message"])
OpenStore = Callable[..., RedisLeaseStore]


@pytest.fixture
async def open_store(mortal_redis: Stack, prefix: str) -> AsyncIterator[OpenStore]:
    """A gateway's end, with a short patience."""
    built: list[tuple[RedisLeaseStore, Server]] = []

    def open_store(url: str | None = None, **options: Any) -> RedisLeaseStore:
        server = Server(url or mortal_redis.redis_url, timeout=options.pop("timeout", QUICK))
        built.append((RedisLeaseStore(server, prefix=prefix, **options), server))
        return built[-1][0]

    yield open_store
    for store, server in built:
        await store.close()
        await server.close()


async def leases(store: RedisLeaseStore, group: Group, count: int) -> bool:
    """Whether so many messages are leased."""
    return sum(each.leased for each in (await positions(store, group)).values()) == count


async def test_a_connection_lost_the_moment_it_is_made_is_made_again(
    redis: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last answer of the examination and the first request: nobody may be left with the dead one."""
    server = Server(redis.redis_url, timeout=QUICK)
    examine = server._examine
    wires: list[Any] = []

    async def examine_and_lose(wire: Any) -> str:
        run = await examine(wire)
        wires.append(wire)
        if len(wires) == 1:
            wire.close()
        return run

    monkeypatch.setattr(server, "_examine", examine_and_lose)
    try:
        await server.probe()
    finally:
        await server.close()

    assert len(wires) == 2


async def test_a_server_that_is_not_there_is_told_at_the_deadline(open_store: OpenStore) -> None:
    """It may come any moment, so it is waited for, but no longer than a request may take."""
    store = open_store(f"redis://127.0.0.1:{free_port()}/0")
    began = time.monotonic()

    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        await ask(store, a_group())

    assert QUICK * 0.9 < time.monotonic() - began < QUICK * 2


@MODES
async def test_a_server_that_starts_again_is_another_incarnation(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """Its file brings keys back, perhaps not the last of them: they count as lost, receipts of before are gone."""
    store = open_store(timeout=10.0)
    await opened(store, group, queues(9))
    before = await granted(store, group, max_count=4)
    await asyncio.to_thread(mortal_redis.kill, "redis")
    await asyncio.to_thread(mortal_redis.start, "redis")

    acquired = await ask(store, group)
    outcome = await ack(store, group, before.lease)

    assert not acquired.state_exists
    assert outcome is SettlementOutcome.GONE
    assert await opened(store, group, queues(9))
    assert await ack(store, group, before.lease) is SettlementOutcome.GONE
    assert (await granted(store, group, max_count=4)).delivery == 1


@MODES
async def test_a_request_that_meets_a_restart_waits_for_it(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """Within its time nobody need hear of it."""
    store = open_store(timeout=20.0)
    await opened(store, group, queues(9))
    await asyncio.to_thread(mortal_redis.kill, "redis")

    asking = asyncio.create_task(ask(store, group))
    await asyncio.to_thread(mortal_redis.start, "redis")

    assert not (await asking).state_exists


@MODES
async def test_flushed_keys_are_lost_state(mortal_redis: Stack, open_store: OpenStore, group: Group) -> None:
    """Nothing half known is left: neither for those who settle, nor for those who look."""
    store = open_store()
    await opened(store, group, queues(9))
    before = await granted(store, group, max_count=4)
    with operator(mortal_redis.redis_url) as redis:
        redis.flushall()

    assert not (await ask(store, group)).state_exists
    assert await ack(store, group, before.lease) is SettlementOutcome.GONE
    assert await store.positions(group, "", {}) is None


@MODES
async def test_scripts_that_were_flushed_are_loaded_again(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """In the middle of the work, and nobody hears of it."""
    store = open_store()
    await opened(store, group, queues(9))
    with operator(mortal_redis.redis_url) as redis:
        for turn in range(4):
            redis.script_flush()
            grant = await granted(store, group, max_count=1)
            redis.script_flush()
            assert (grant.lease.start, await ack(store, group, grant.lease)) == (turn, SettlementOutcome.APPLIED)


@MODES
async def test_a_silent_server_is_told_at_the_deadline_and_what_it_gave_goes_back(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """Invariant 20: it did its work late, when nobody waited any more; the lease does not hang until its end."""
    store = open_store(timeout=QUICK)
    await opened(store, group, queues(9))
    await asyncio.to_thread(mortal_redis.pause, "redis")
    began = time.monotonic()
    try:
        with pytest.raises(StorageUnavailable, match="did not answer"):
            await ask(store, group)
        waited = time.monotonic() - began
    finally:
        await asyncio.to_thread(mortal_redis.resume, "redis")
    await until(lambda: leases(store, group, 0))

    assert waited < QUICK * 1.5
    assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]


@MODES
async def test_leases_go_back_whose_answer_was_given_up_with_its_connection(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """A server silent for so long that we turn away from it: what it did meanwhile is found again by its number."""
    store = open_store(timeout=QUICK)
    await opened(store, group, queues(9))
    async with Wire(mortal_redis.redis_url).open() as wire:
        muted = open_store(wire.url, timeout=QUICK)
        await muted.clients("nobody")
        wire.mute()
        with pytest.raises(StorageUnavailable):
            await ask(muted, group)
        assert await leases(store, group, 9)

        wire.cut()
        wire.unmute()
        await until(lambda: leases(store, group, 0))
    assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]


@MODES
async def test_a_receive_whose_answer_was_lost_is_given_the_same_again(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """Sent again on a new connection: nothing is granted twice, nothing hangs, and nothing counts twice."""
    other = open_store()
    await opened(other, group, queues(9, 9))
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        asking = ask(store, group, max_count=4)
        (grant,) = (await _repeated(wire, store, asking, lambda: leases(other, group, 4))).grants

    assert (grant.lease.epoch, grant.delivery) == (1, 1)
    assert await leases(other, group, 4)
    assert await ack(other, group, grant.lease) is SettlementOutcome.APPLIED


async def test_a_short_pull_whose_answer_was_lost_still_stands(mortal_redis: Stack, open_store: OpenStore) -> None:
    """Else its messages would be in nobody's hands until the lease ends."""
    group = a_group()
    other = open_store()
    await opened(other, group, queues(9))
    grant = await granted(other, group, max_count=4)
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        stay = await _repeated(
            wire, store, store.report_pull(group, [_found(grant, 2)]), lambda: leases(other, group, 2)
        )

    assert stay == [frozenset({0, 1})]


async def test_a_hand_back_whose_answer_was_lost_counts_once(mortal_redis: Stack, open_store: OpenStore) -> None:
    """Nobody had it, so the next delivery is the first; not the one before the first."""
    group = a_group()
    other = open_store()
    await opened(other, group, queues(9))
    grant = await granted(other, group, max_count=4)
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        await _repeated(wire, store, store.report_pull(group, [_found(grant, 0)]), lambda: leases(other, group, 0))

    assert (await position(other, group)).attempts == 0
    assert (await granted(other, group)).delivery == 1


def _found(grant: Grant, count: int) -> PullReport:
    """The pull found so many of it."""
    return PullReport(grant, grant.lease.start + count)


async def _repeated(
    wire: Wire, store: RedisLeaseStore, step: Awaitable[Any], is_done: Callable[[], Awaitable[bool]]
) -> Any:
    """Do a step and lose its answer: what is answered when it is sent again."""
    await store.clients("nobody")
    wire.mute()
    under_way = asyncio.ensure_future(step)
    await until(is_done)
    wire.cut()
    wire.unmute()
    return await under_way


async def test_a_broadcast_client_hears_that_it_was_registered_though_the_answer_was_lost(
    mortal_redis: Stack, open_store: OpenStore
) -> None:
    """Never a silent jump: sent again, its registration must not look like somebody else's."""
    group = a_group(mode=Mode.BROADCAST)
    other = open_store()
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        opening = store.create_state(group, "screen", {QUEUE: 9}, queues(9))

        async def state_exists() -> bool:
            return await other.positions(group, "screen", {}) is not None

        assert await _repeated(wire, store, opening, state_exists)
    assert not await opened(other, group, queues(9), client="screen")
