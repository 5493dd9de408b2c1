"""The short way of a usual receive leads where the long one does: to the same answers, and the same in every key."""

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from twin_machine import CHANGES, CLIENTS, SECOND, STEPS, TwinMachine
from usual_twins import UsualTwins

from mqgate.adapters.redis import answers, lease_store
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.server import Server
from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import Mode
from mqgate.core.lease import AcquireRequest, Grant, Settlement, Verb
from mqgate.stack import Stack
from mqgate.testing.leasing import ask, opened
from mqgate.testing.samples import a_group, queues

WALKS = 10
# Until every queue was granted once; with the 64th grant old ones are forgotten.
WARM = 24


def acks_of(mode: Mode, grant: Grant) -> list[Settlement]:
    """The whole batch, as the mode settles it."""
    lease = grant.lease
    if mode is not Mode.MESSAGE:
        return [Settlement(Verb.ACK, lease)]
    offsets = range(lease.start, lease.next)
    return [Settlement(Verb.ACK, lease._replace(start=offset, next=offset + 1)) for offset in offsets]


class Walk(TwinMachine):
    """Mostly what consumers mostly do: ack what they had, and ask for more; and now and then anything else."""

    def __init__(self, twins: UsualTwins, kind: str, dice: random.Random) -> None:
        super().__init__(twins, kind)
        self.dice = dice
        ends = [dice.choice([40, 200, dice.randrange(300)]) for _ in range(4)]
        self.register(ends[: dice.randint(1, 4)])

    def step(self) -> None:
        if self.delivered and self.dice.random() < USUAL:
            self.carry_on()
        else:
            self.dice.choice(ODD)(self, self.dice)

    def carry_on(self) -> None:
        dice, client = self.dice, self.dice.choice(CLIENTS)
        grant = self.delivered[-dice.choice([1, 1, 1, 2, 3]) % len(self.delivered)]
        request = AcquireRequest(
            group=self.group,
            client=self.scope(client),
            max_count=dice.choice([1, 2, 8]),
            visibility=dice.choice([SECOND, 30 * SECOND, 300 * SECOND, 300 * SECOND]),
            bounds={},
            polled_by=client,
            settlements=acks_of(self.mode, grant),
            has_other_waiters=dice.random() < 0.5,
            wait=dice.choice([timedelta(0), timedelta(hours=1)]),
        )
        self.acquire(client, request)
        self.twins.clock.advance(dice.choice([0, 0, 0.001, 1, 12]))

    def calm_down(self, _: random.Random) -> None:
        """Whatever was changed is as it was, and there is more to consume."""
        limits = {"is_paused": False, "rate_limit": None, "max_attempts": 4, "max_in_flight": 10_000}
        self.group = replace(self.group, backoff=self.dice.choice([STEPS, NO_BACKOFF, Backoff()]), **limits)
        for number in range(len(self.bounds)):
            self.append(number, 100)
        self.look("ada", is_told=True)

    def expire(self, dice: random.Random) -> None:
        """Retention is quicker than consumers, and the group hears of it."""
        self.lose_to_retention(dice.randrange(4), dice.randint(1, 150))
        self.look("ada", is_told=True)

    def nack(self, dice: random.Random) -> None:
        if self.delivered:
            self.settle([settlement(dice, [Verb.NACK]) | {"delay": timedelta(0)}])

    def settle_some(self, dice: random.Random) -> None:
        if self.delivered:
            self.settle([settlement(dice, [*Verb]) for _ in range(dice.randint(1, 3))])


def settlement(dice: random.Random, verbs: Sequence[Verb]) -> dict[str, Any]:
    return {
        "number": dice.randrange(4),
        "verb": dice.choice(verbs),
        "delay": dice.choice([None, timedelta(0), 3 * SECOND]),
        "visibility": dice.choice([None, SECOND, 30 * SECOND]),
        "reason": dice.choice([None, "no"]),
        "share": dice.randrange(4),
    }


def wish(dice: random.Random) -> dict[str, Any]:
    return {
        "client": dice.choice(CLIENTS),
        "max_count": dice.choice([1, 2, 8]),
        "visibility": dice.choice([SECOND, 5 * SECOND, 30 * SECOND]),
        "attempt": dice.choice([None, None, "a1", "a2"]),
        "carried": [settlement(dice, [Verb.ACK, Verb.ACK, Verb.NACK]) for _ in range(dice.randrange(3))],
        "has_other_waiters": dice.random() < 0.5,
        "closed": dice.choice([(), (), ("local:0",)]),
        "is_told": dice.random() < 0.7,
    }


ODD: Sequence[Callable[[Walk, random.Random], None]] = (
    *[lambda walk, dice: walk.receive(wish(dice), dice.choice([0, 1, 100, 100]))] * 6,
    *[Walk.calm_down] * 6,
    *[Walk.settle_some] * 2,
    lambda walk, dice: walk.receive_and_die(wish(dice)),
    lambda walk, dice: walk.wait(dice.choice([0.5, 2, 10, 31])),
    lambda walk, dice: walk.append(dice.randrange(4), dice.randint(1, 6)),
    Walk.expire,
    *[Walk.nack] * 3,
    lambda walk, dice: walk.come_back_shorter(dice.randrange(4), dice.randint(0, 3)),
    lambda walk, dice: walk.tell_late(dice.randrange(4), dice.choice([0, 1, 100])) if walk.grants else None,
    lambda walk, dice: walk.settle_dead(dice.randrange(4)) if walk.exhausted else None,
    lambda walk, dice: walk.seek(dice.choice(CLIENTS), dice.randrange(4), dice.randrange(101), is_dry_run=False),
    lambda walk, dice: walk.change_the_group(dice.choice(CHANGES)),
    lambda walk, dice: walk.something_rare(dice.choice(["forget", "open"]), dice.choice(CLIENTS)),
)
USUAL = 0.8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["queue", "plain"])
def test_the_short_way_leads_where_the_long_one_does(
    mortal_redis: Stack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nobody can tell which one was taken, neither by the answer nor by anything that comes later."""
    seed = int(os.environ.get("WALK_SEED", "1"))
    twins = UsualTwins(mortal_redis.redis_url, monkeypatch, len(CLIENTS))
    try:
        for number in range(seed, seed + WALKS):
            twins.clear()
            walk = Walk(twins, kind, random.Random(number))
            for _ in range(150):
                walk.step()
    finally:
        twins.close()

    assert twins.count > 20 * WALKS


@pytest.mark.parametrize("server", ["alone"], indirect=True)
@pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])
@pytest.mark.parametrize(("consumers", "has_other_waiters"), [(8, False), (8, True), (3, True), (3, False), (1, False)])
async def test_a_steady_consumer_takes_the_short_way(
    server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch, mode: Mode, consumers: int, has_other_waiters: bool
) -> None:
    """As many consumers as queues or fewer, and whether others wait or not: it is what they do all day."""
    ways: Counter[bool] = Counter()
    is_usual = answers.is_usual

    def noted(reply: Any) -> bool:
        found = is_usual(reply)
        ways[found] += 1
        return found

    monkeypatch.setattr(answers, "is_usual", noted)
    monkeypatch.setattr(lease_store, "_SEEN_EVERY", 1e9)
    store, group = RedisLeaseStore(server, prefix=prefix), a_group(mode=mode, backoff=Backoff(jitter=0))
    await opened(store, group, queues(*[100_000] * 8))
    carried: dict[int, list[Settlement]] = {}

    for number in range(60):
        consumer = number % consumers
        if number == WARM:
            ways.clear()
        acquired = await ask(
            store,
            group,
            polled_by=f"c-{consumer}",
            carrying=carried.get(consumer, ()),
            has_other_waiters=has_other_waiters,
        )
        carried[consumer] = [each for grant in acquired.grants for each in acks_of(group.mode, grant)]

    assert ways == {True: 60 - WARM}
