"""A step that granted nothing is not repeated for 50 ms, unless this gateway knows of an event since then (O11)."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mqgate.adapters.redis import empty_steps
from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.core.backoff import NO_BACKOFF
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import AcquireRequest, AcquireResult, Lease, PullReport, ReceiveState, Settlement, Verb
from mqgate.testing.leasing import QUEUE, ack, ask, granted, nack, opened
from mqgate.testing.samples import a_group, queues

pytestmark = pytest.mark.parametrize("server", ["alone"], indirect=True)
MODES = pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])


class Poller:
    """A store whose only queue is leased, and a consumer that has found it so."""

    def __init__(self, server: RedisClient, prefix: str, mode: Mode) -> None:
        self.server = server
        self.store = RedisLeaseStore(server, prefix=prefix)
        self.group: Group = a_group(mode=mode, backoff=NO_BACKOFF)
        self.lease = Lease("", "", "", 0, 0, 0, "")

    async def open(self, visibility: timedelta | None = None) -> None:
        await opened(self.store, self.group, queues(8))
        self.lease = (await granted(self.store, self.group, max_count=8, visibility=visibility)).lease
        assert (await self.poll()).state is ReceiveState.BUSY

    async def poll(self, **wish: Any) -> AcquireResult:
        return await ask(self.store, self.group, **wish)

    async def trips(self, **wish: Any) -> int:
        """Return how many round trips another poll takes."""
        before = self.server.round_trips
        await self.poll(**wish)
        return self.server.round_trips - before

    @property
    def acks(self) -> list[Settlement]:
        if self.group.mode is Mode.QUEUE:
            return [Settlement(Verb.ACK, self.lease)]
        return [Settlement(Verb.ACK, self.lease._replace(start=offset, next=offset + 1)) for offset in range(8)]


@pytest.fixture
async def poller(server: RedisClient, prefix: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> Poller:
    # Long enough for any machine: tests that wait for the end shorten it.
    monkeypatch.setattr(empty_steps, "_LIFETIME", 60.0)
    poller = Poller(server, prefix, mode)
    await poller.open()
    return poller


@MODES
async def test_an_empty_step_is_not_repeated(poller: Poller) -> None:
    """Consumers that poll without a wait must not keep Redis busy while others hold all queues."""
    assert await poller.trips() == 0
    assert (await poller.poll()).state is ReceiveState.BUSY


@MODES
async def test_an_empty_step_is_repeated_after_50_ms(server: RedisClient, prefix: str, mode: Mode) -> None:
    """Changes by other gateways are found then."""
    poller = Poller(server, prefix, mode)
    await poller.open()
    await asyncio.sleep(0.06)

    assert await poller.trips() == 1


@MODES
@pytest.mark.parametrize(
    "wish",
    [{"attempt": "a1"}, {"bounds": queues(9)}, {"closed": (QUEUE,)}],
    ids=["an attempt", "new bounds", "a closed queue"],
)
async def test_a_request_that_carries_something_is_always_sent(poller: Poller, wish: dict[str, Any]) -> None:
    """Its result may differ, and its effect must not be lost."""
    assert await poller.trips(**wish) == 1


@MODES
async def test_a_receive_that_parks_is_always_sent(poller: Poller) -> None:
    """Other gateways send wake-ups only if Redis has a record of parked receives."""
    before = poller.server.round_trips
    await poller.store.acquire(
        AcquireRequest(poller.group, "", 8, poller.group.visibility, {}, "consumer", wait=timedelta(seconds=1))
    )

    assert poller.server.round_trips == before + 1


@MODES
async def test_a_carried_ack_is_always_sent(poller: Poller) -> None:
    """A poll after it finds that the queue is empty."""
    settled = (await poller.poll(carrying=poller.acks)).settled

    assert {result.outcome.value for result in settled} == {"applied"}


@pytest.mark.parametrize("mode", [Mode.QUEUE])
async def test_messages_that_an_ack_uncovers_are_granted_at_once(poller: Poller) -> None:
    """The queue is free again, and has one more message."""
    await poller.poll(bounds=queues(9))
    await ack(poller.store, poller.group, poller.lease)

    assert len((await poller.poll()).grants) == 1


@MODES
async def test_released_messages_are_granted_at_once(poller: Poller) -> None:
    """A nack without a delay and a failed pull make messages ready."""
    await nack(poller.store, poller.group, poller.lease, delay=timedelta(0))
    again = (await poller.poll()).grants[0]
    assert (await poller.poll()).state is not ReceiveState.PAUSED
    await poller.store.report_pull(poller.group, [PullReport(again, again.lease.start)])

    assert (await poller.poll()).grants


@MODES
async def test_a_change_of_the_group_applies_at_once(poller: Poller) -> None:
    """A paused group returns `paused`, not the state of the last step."""
    poller.group = replace(poller.group, is_paused=True)

    assert (await poller.poll()).state is ReceiveState.PAUSED


@MODES
async def test_a_seek_applies_at_once(poller: Poller) -> None:
    """The messages are ready again."""
    await poller.store.seek(poller.group, "", {QUEUE: 0}, is_dry_run=False)

    assert (await poller.poll()).grants


@MODES
async def test_a_lease_that_expires_ends_the_step(
    server: RedisClient, prefix: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has reported when the lease ends."""
    monkeypatch.setattr(empty_steps, "_LIFETIME", 60.0)
    poller = Poller(server, prefix, mode)
    await poller.open(visibility=timedelta(milliseconds=300))
    await asyncio.sleep(0.35)

    assert (await poller.poll()).grants


@MODES
async def test_a_step_that_a_settlement_overtakes_is_not_kept(poller: Poller) -> None:
    """The settlement was sent while the reply to the step was on its way."""
    await asyncio.sleep(0)
    poller.store._empty_steps.forget(poller.group.name)
    step = asyncio.ensure_future(poller.poll())
    await asyncio.sleep(0)
    released = asyncio.ensure_future(nack(poller.store, poller.group, poller.lease, delay=timedelta(0)))
    assert not (await step).grants
    await released

    assert (await poller.poll()).grants
