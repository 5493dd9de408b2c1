"""Two and three consumers on one queue, their steps interleaved in every possible order.

Each actor has a short script; time is an actor too, whose every step lets all leases end that are not
renewed. After every step the store must agree with an observer who only wrote down what was answered: who
holds the queue, until when, and what is committed. What several schedules begin with is compared in one of them, and
of two schedules that differ only in the names of their actors one is played.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import factorial, prod
from pathlib import Path
from uuid import uuid4

import pytest

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.core.entries import Group
from mqgate.core.lease import Grant, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ask, opened, position, report_short_pull, settled
from mqgate.testing.samples import a_group, queues

VISIBILITY = timedelta(seconds=10)
BACKLOG = 1_000
FINISH = ("acquire", "ack")
TWICE = ("acquire", "ack", "ack")
PARTLY = ("acquire", "ack a prefix")
RELEASE = ("acquire", "nack")
RENEW = ("acquire", "extend", "ack")
GIVE_BACK = ("acquire", "give back")
CARRY = ("acquire", "ack and acquire", "ack")
REPEAT = ("acquire by attempt", "acquire by attempt", "ack")
TIME = ("tick",)

Script = tuple[str, ...]
Schedule = tuple[tuple[int, str], ...]


def interleavings(scripts: Sequence[Script], begun: frozenset[int] = frozenset()) -> Iterator[Schedule]:
    """Yield every order of the steps of the scripts that keeps the order within each script."""
    if not any(scripts):
        yield ()
    for actor, script in enumerate(scripts):
        is_twin = any(script == scripts[other] and other not in begun for other in range(actor))
        if script and (actor in begun or not is_twin):
            rest = [*scripts[:actor], script[1:], *scripts[actor + 1 :]]
            for others in interleavings(rest, begun | {actor}):
                yield ((actor, script[0]), *others)


@dataclass
class Held:
    """A lease as its holder and the observer see it."""

    grant: Grant
    until: datetime
    spent_by: Verb | None = None
    is_returned: bool = False


@dataclass
class Table:
    """A group with one queue, its actors, and the notes of the observer."""

    store: LeaseStore
    clock: ManualClock
    group: Group
    schedule: Schedule
    # Beginnings of schedules after which the store was compared.
    compared: set[Schedule]
    held: dict[int, Held] = field(default_factory=dict)
    newest: Held | None = None
    committed: int = 0

    def holder(self) -> Held | None:
        newest = self.newest
        if newest and not newest.spent_by and not newest.is_returned and self.clock.now < newest.until:
            return newest
        return None

    async def play(self, number: int) -> None:
        """Execute one step of the schedule. The caller moves the clock."""
        actor, step = self.schedule[number]
        try:
            if step != "tick":
                await self.step(actor, step)
            if (begin := self.schedule[: number + 1]) not in self.compared:
                self.compared.add(begin)
                await self.agrees()
        except AssertionError as error:
            steps = [step if step == "tick" else f"{actor} {step}" for actor, step in self.schedule[: number + 1]]
            raise AssertionError(f"{' -> '.join(steps)}\n{error}") from error

    async def agrees(self) -> None:
        """Assert that the store has the committed offset and lock deadline of the observer."""
        seen = await position(self.store, self.group)
        holder = self.holder()
        assert seen.committed == self.committed
        assert seen.locked_until == (holder.until if holder else None)

    async def step(self, actor: int, step: str) -> None:
        held = self.held.get(actor)
        if step.startswith("acquire"):
            await self.acquire(actor, attempt=f"{actor}" if "attempt" in step else None)
        elif held is None:
            return
        elif step == "give back":
            await report_short_pull(self.store, self.group, held.grant, held.grant.lease.start)
            held.is_returned |= held is self.newest
        elif step == "ack and acquire":
            expected = self.expected(held, Verb.ACK)
            await self.acquire(actor, carrying=held, expected=expected)
        else:
            verb = Verb(step.split(maxsplit=1)[0])
            through = held.grant.lease.start if "prefix" in step else None
            expected = self.expected(held, verb)
            response = await settled(
                self.store, self.group, verb, held.grant.lease, through=through, visibility=VISIBILITY
            )
            assert response.outcome is expected
            self.write_down(held, verb, expected, through)

    def expected(self, held: Held, verb: Verb) -> SettlementOutcome:
        """Return the outcome according to the outcome table of semantics.md."""
        if held.spent_by is not None:
            return SettlementOutcome.DUPLICATE if held.spent_by is verb else SettlementOutcome.LOST
        if held is not self.newest:
            return SettlementOutcome.LOST
        return SettlementOutcome.APPLIED if self.clock.now < held.until else SettlementOutcome.LATE_APPLIED

    def write_down(self, held: Held, verb: Verb, outcome: SettlementOutcome, through: int | None = None) -> None:
        if outcome not in {SettlementOutcome.APPLIED, SettlementOutcome.LATE_APPLIED}:
            return
        if verb is Verb.EXTEND:
            held.until = self.clock.now + VISIBILITY
            return
        held.spent_by = verb
        if verb is Verb.ACK:
            after = held.grant.lease.next if through is None else through + 1
            assert after > self.committed, "committed went back"
            self.committed = after

    async def acquire(
        self,
        actor: int,
        *,
        attempt: str | None = None,
        carrying: Held | None = None,
        expected: SettlementOutcome | None = None,
    ) -> None:
        acks = [Settlement(verb=Verb.ACK, lease=carrying.grant.lease)] if carrying else []
        acquired = await ask(self.store, self.group, max_count=10, attempt=attempt, carrying=acks)
        if carrying and expected:
            assert [result.outcome for result in acquired.settled] == [expected]
            self.write_down(carrying, Verb.ACK, expected)
        holder, own = self.holder(), self.held.get(actor)
        if holder is not None:
            is_repeat = attempt is not None and holder is own
            assert [grant.lease for grant in acquired.grants] == ([holder.grant.lease] if is_repeat else [])
            return
        (grant,) = acquired.grants
        assert grant.lease.start == self.committed
        assert self.newest is None or grant.lease.epoch > self.newest.grant.lease.epoch
        self.newest = self.held[actor] = Held(grant, grant.leased_until)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
async def store(tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest) -> AsyncIterator[LeaseStore]:
    if request.param == "redis":
        server = RedisClient(request.getfixturevalue("redis").redis_url, timeout=60.0)
        yield RedisLeaseStore(server, prefix=uuid4().hex[:8], clock=clock)
        await server.close()
        return
    # Durability is not the question here, and thousands of schedules are played.
    engine = Engine(tmp_path, synchronous="off", wall_ms=clock)
    yield SqliteLeaseStore(engine)
    await engine.close()


def same_orders(scripts: Sequence[Script]) -> int:
    """Return the number of ways to rename the actors without changing an interleaving."""
    return prod(factorial(count) for count in Counter(scripts).values())


async def play_all(store: LeaseStore, clock: ManualClock, scripts: Sequence[Script]) -> list[Table]:
    """Play every interleaving with a group of its own. Those whose clock moves at the same step run concurrently."""
    by_ticks: dict[tuple[int, ...], list[Table]] = {}
    compared: set[Schedule] = set()
    for number, schedule in enumerate(interleavings(scripts)):
        group = a_group(name=f"g{number}", visibility=VISIBILITY, max_attempts=1_000)
        ticks = tuple(index for index, (_, step) in enumerate(schedule) if step == "tick")
        by_ticks.setdefault(ticks, []).append(Table(store, clock, group, schedule, compared))
    for ticks, tables in by_ticks.items():
        await asyncio.gather(*(opened(store, table.group, queues(BACKLOG)) for table in tables))
        for step in range(sum(map(len, scripts))):
            if step in ticks:
                clock.advance(VISIBILITY)
            await asyncio.gather(*(table.play(step) for table in tables))
    return [table for tables in by_ticks.values() for table in tables]


_SECOND = [FINISH, RELEASE, RENEW, CARRY]
_PAIRS = [
    (first, second)
    for first in [*_SECOND, TWICE, PARTLY, GIVE_BACK, REPEAT]
    for number, second in enumerate(_SECOND)
    # The other way round it is the same.
    if first not in _SECOND[:number]
]


@pytest.mark.parametrize(("first", "second"), _PAIRS, ids=" ".join)
async def test_two_consumers_never_hold_one_queue_at_once(
    store: LeaseStore, clock: ManualClock, first: Script, second: Script
) -> None:
    """Invariants 5, 6 and 8 in every order, with leases that expire at any two points."""
    played = await play_all(store, clock, [first, second, TIME * 2])

    assert len(played) >= 45


@pytest.mark.slow
@pytest.mark.parametrize(
    "scripts",
    [
        (FINISH, FINISH, FINISH),
        (FINISH, RELEASE, FINISH),
        (RELEASE, RELEASE, FINISH),
        (GIVE_BACK, FINISH, RELEASE),
        (PARTLY, FINISH, RELEASE),
    ],
    ids=lambda scripts: " | ".join(script[-1] for script in scripts),
)
async def test_three_consumers_never_hold_one_queue_at_once(
    store: LeaseStore, clock: ManualClock, scripts: tuple[Script, ...]
) -> None:
    """A late ack of the first consumer releases neither the lease of the second nor that of the third."""
    played = await play_all(store, clock, [*scripts, TIME])

    assert len(played) * same_orders(scripts) == 630


async def test_a_renewing_consumer_among_three_keeps_its_queue(store: LeaseStore, clock: ManualClock) -> None:
    """An extend excludes both other consumers, or is refused because it is too late."""
    played = await play_all(store, clock, [RENEW, FINISH, RELEASE, TIME])

    assert len(played) == 1_680


async def test_no_schedule_leaves_the_queue_stuck(store: LeaseStore, clock: ManualClock) -> None:
    """Invariant 13: after the leases of two consumers have expired, a third one gets the queue."""
    played = await play_all(store, clock, [RENEW, GIVE_BACK, TIME])
    clock.advance(VISIBILITY)

    for table in played:
        await table.step(9, "acquire")
        await table.step(9, "ack")

        assert table.committed == table.held[9].grant.lease.next
