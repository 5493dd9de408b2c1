"""Behaviour while Redis is down, does not respond, restarts or loses data."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from eventually import until
from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
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
    """Return a function that opens lease stores with a short timeout."""
    built: list[tuple[RedisLeaseStore, RedisClient]] = []

    def open_store(url: str | None = None, **options: Any) -> RedisLeaseStore:
        server = RedisClient(url or mortal_redis.redis_url, timeout=options.pop("timeout", QUICK))
        built.append((RedisLeaseStore(server, prefix=prefix, **options), server))
        return built[-1][0]

    yield open_store
    for store, server in built:
        await store.close()
        await server.close()


async def leases(store: RedisLeaseStore, group: Group, count: int) -> bool:
    """Return whether `count` messages are leased."""
    return sum(found.leased for found in (await positions(store, group)).values()) == count


async def test_a_connection_lost_right_after_connecting_is_replaced(
    redis: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss between the last reply of the examination and the first command must not leave a dead connection."""
    server = RedisClient(redis.redis_url, timeout=QUICK)
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


async def test_an_absent_server_is_reported_at_the_deadline(open_store: OpenStore) -> None:
    """The server may start at any moment, so the gateway waits, but not longer than the timeout."""
    store = open_store(f"redis://127.0.0.1:{free_port()}/0")
    began = time.monotonic()

    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        await ask(store, a_group())

    assert QUICK * 0.9 < time.monotonic() - began < QUICK * 2


@MODES
async def test_a_restarted_server_has_lost_all_lease_state(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """A restored file may lack the last writes, so none of its keys are used, and old receipts are gone."""
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
async def test_a_request_during_a_restart_waits_for_its_end(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """A restart that is shorter than the timeout must not cause errors."""
    store = open_store(timeout=20.0)
    await opened(store, group, queues(9))
    await asyncio.to_thread(mortal_redis.kill, "redis")

    asking = asyncio.create_task(ask(store, group))
    await asyncio.to_thread(mortal_redis.start, "redis")

    assert not (await asking).state_exists


@MODES
async def test_after_a_flush_there_is_no_lease_state(mortal_redis: Stack, open_store: OpenStore, group: Group) -> None:
    """Settlements and positions must not use a part of the old state."""
    store = open_store()
    await opened(store, group, queues(9))
    before = await granted(store, group, max_count=4)
    with operator(mortal_redis.redis_url) as redis:
        redis.flushall()

    assert not (await ask(store, group)).state_exists
    assert await ack(store, group, before.lease) is SettlementOutcome.GONE
    assert await store.positions(group, "", {}) is None


@MODES
async def test_flushed_scripts_are_loaded_again(mortal_redis: Stack, open_store: OpenStore, group: Group) -> None:
    """SCRIPT FLUSH by an operator must not cause errors."""
    store = open_store()
    await opened(store, group, queues(9))
    with operator(mortal_redis.redis_url) as redis:
        for turn in range(4):
            redis.script_flush()
            grant = await granted(store, group, max_count=1)
            redis.script_flush()
            assert (grant.lease.start, await ack(store, group, grant.lease)) == (turn, SettlementOutcome.APPLIED)


@MODES
async def test_leases_of_a_reply_after_the_deadline_are_released(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """Invariant 20: the caller got an error, so the lease of the late reply must not block until it expires."""
    store = open_store(timeout=QUICK)
    await opened(store, group, queues(9))
    await asyncio.to_thread(mortal_redis.pause, "redis")
    began = time.monotonic()
    try:
        with pytest.raises(StorageUnavailable, match="did not respond"):
            await ask(store, group)
        waited = time.monotonic() - began
    finally:
        await asyncio.to_thread(mortal_redis.resume, "redis")
    await until(lambda: leases(store, group, 0))

    assert waited < QUICK * 1.5
    assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]


@MODES
async def test_leases_of_a_reply_lost_with_its_connection_are_released(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """The gateway finds the leases again by the nonce of the request."""
    store = open_store(timeout=QUICK)
    await opened(store, group, queues(9))
    async with Wire(mortal_redis.redis_url).open() as wire:
        muted = open_store(wire.url, timeout=QUICK)
        await muted.clients("unused")
        wire.mute()
        with pytest.raises(StorageUnavailable):
            await ask(muted, group)
        assert await leases(store, group, 9)

        wire.cut()
        wire.unmute()
        await until(lambda: leases(store, group, 0))
    assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]


@MODES
async def test_a_receive_whose_reply_was_lost_gets_the_same_grant_again(
    mortal_redis: Stack, open_store: OpenStore, group: Group
) -> None:
    """The command is sent again on a new connection: nothing is granted or counted twice."""
    other = open_store()
    await opened(other, group, queues(9, 9))
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        asking = ask(store, group, max_count=4)
        (grant,) = (await _repeated(wire, store, asking, lambda: leases(other, group, 4))).grants

    assert (grant.lease.epoch, grant.delivery) == (1, 1)
    assert await leases(other, group, 4)
    assert await ack(other, group, grant.lease) is SettlementOutcome.APPLIED


async def test_a_pull_report_whose_reply_was_lost_still_applies(mortal_redis: Stack, open_store: OpenStore) -> None:
    """Otherwise no client would have the messages until their lease expires."""
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


async def test_a_release_whose_reply_was_lost_is_counted_once(mortal_redis: Stack, open_store: OpenStore) -> None:
    """No client had the messages, so the next delivery must be number 1, not 0."""
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
    """Return the report of a pull that found `count` messages."""
    return PullReport(grant, grant.lease.start + count)


async def _repeated(
    wire: Wire, store: RedisLeaseStore, step: Awaitable[Any], is_done: Callable[[], Awaitable[bool]]
) -> Any:
    """Run a step, lose its reply, and return the reply of the repeated command."""
    await store.clients("unused")
    wire.mute()
    under_way = asyncio.ensure_future(step)
    await until(is_done)
    wire.cut()
    wire.unmute()
    return await under_way


async def test_a_broadcast_client_is_registered_once_although_the_reply_was_lost(
    mortal_redis: Stack, open_store: OpenStore
) -> None:
    """The client must get the notice `registered`: the repeated command must recognise its own registration."""
    group = a_group(mode=Mode.BROADCAST)
    other = open_store()
    async with Wire(mortal_redis.redis_url).open() as wire:
        store = open_store(wire.url, timeout=20.0)
        opening = store.create_state(group, "screen", {QUEUE: 9}, queues(9))

        async def state_exists() -> bool:
            return await other.positions(group, "screen", {}) is not None

        assert await _repeated(wire, store, opening, state_exists)
    assert not await opened(other, group, queues(9), client="screen")
