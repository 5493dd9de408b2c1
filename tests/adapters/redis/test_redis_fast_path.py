"""The fast path of a receive returns the same results and writes the same keys as the full script."""

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fast_path_twins import FastPathTwins
from twin_machine import CHANGES, CLIENTS, SECOND, STEPS, TwinMachine

from mqgate.adapters.redis import lease_store, replies
from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import Mode
from mqgate.core.lease import AcquireRequest, Grant, Settlement, Verb
from mqgate.stack import Stack
from mqgate.testing.leasing import ask, opened
from mqgate.testing.samples import a_group, queues

WALKS = 10
# Receives until every queue was granted once. The 64th grant, which deletes old ones, is not reached.
WARM = 24


def acks_of(mode: Mode, grant: Grant) -> list[Settlement]:
    """Return the acks of a whole grant."""
    lease = grant.lease
    if mode is not Mode.MESSAGE:
        return [Settlement(Verb.ACK, lease)]
    offsets = range(lease.start, lease.next)
    return [Settlement(Verb.ACK, lease._replace(start=offset, next=offset + 1)) for offset in offsets]


class Walk(TwinMachine):
    """Random walk that usually acks a batch and receives the next one, and sometimes runs any other step."""

    def __init__(self, twins: FastPathTwins, kind: str, dice: random.Random) -> None:
        super().__init__(twins, kind)
        self.dice = dice
        ends = [dice.choice([40, 200, dice.randrange(300)]) for _ in range(4)]
        self.register(ends[: dice.randint(1, 4)])

    def step(self) -> None:
        if self.delivered and self.dice.random() < FAST_PATH_SHARE:
            self.carry_on()
        else:
            self.dice.choice(OTHER_STEPS)(self, self.dice)

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

    def restore_defaults(self, _: random.Random) -> None:
        """Undo changes of the group and append messages."""
        limits = {"is_paused": False, "rate_limit": None, "max_attempts": 4, "max_in_flight": 10_000}
        self.group = replace(self.group, backoff=self.dice.choice([STEPS, NO_BACKOFF, Backoff()]), **limits)
        for number in range(len(self.bounds)):
            self.append(number, 100)
        self.read_positions("ada", is_reported=True)

    def expire(self, dice: random.Random) -> None:
        """Delete messages by retention and report it."""
        self.lose_to_retention(dice.randrange(4), dice.randint(1, 150))
        self.read_positions("ada", is_reported=True)

    def nack(self, dice: random.Random) -> None:
        if self.delivered:
            self.settle([settlement(dice, [Verb.NACK]) | {"delay": timedelta(0)}])

    def settle_batch(self, dice: random.Random) -> None:
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


def random_request(dice: random.Random) -> dict[str, Any]:
    return {
        "client": dice.choice(CLIENTS),
        "max_count": dice.choice([1, 2, 8]),
        "visibility": dice.choice([SECOND, 5 * SECOND, 30 * SECOND]),
        "attempt": dice.choice([None, None, "a1", "a2"]),
        "carried": [settlement(dice, [Verb.ACK, Verb.ACK, Verb.NACK]) for _ in range(dice.randrange(3))],
        "has_other_waiters": dice.random() < 0.5,
        "closed": dice.choice([(), (), ("local:0",)]),
        "is_reported": dice.random() < 0.7,
    }


OTHER_STEPS: Sequence[Callable[[Walk, random.Random], None]] = (
    *[lambda walk, dice: walk.receive(random_request(dice), dice.choice([0, 1, 100, 100]))] * 6,
    *[Walk.restore_defaults] * 6,
    *[Walk.settle_batch] * 2,
    lambda walk, dice: walk.receive_and_crash(random_request(dice)),
    lambda walk, dice: walk.wait(dice.choice([0.5, 2, 10, 31])),
    lambda walk, dice: walk.append(dice.randrange(4), dice.randint(1, 6)),
    Walk.expire,
    *[Walk.nack] * 3,
    lambda walk, dice: walk.truncate(dice.randrange(4), dice.randint(0, 3)),
    lambda walk, dice: walk.report_late(dice.randrange(4), dice.choice([0, 1, 100])) if walk.grants else None,
    lambda walk, dice: walk.settle_dead(dice.randrange(4)) if walk.exhausted else None,
    lambda walk, dice: walk.seek(dice.choice(CLIENTS), dice.randrange(4), dice.randrange(101), is_dry_run=False),
    lambda walk, dice: walk.change_the_group(dice.choice(CHANGES)),
    lambda walk, dice: walk.rare_step(dice.choice(["forget", "open"]), dice.choice(CLIENTS)),
)
FAST_PATH_SHARE = 0.8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["queue", "plain"])
def test_the_fast_path_has_the_result_of_the_full_script(
    mortal_redis: Stack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A client must not see a difference, neither in the response nor in any later one."""
    seed = int(os.environ.get("WALK_SEED", "1"))
    twins = FastPathTwins(mortal_redis.redis_url, monkeypatch, len(CLIENTS))
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
async def test_a_steady_consumer_uses_the_fast_path(
    server: RedisClient,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    consumers: int,
    has_other_waiters: bool,
) -> None:
    """This is the load of a busy group: without the fast path a receive costs several times as much CPU."""
    uses: Counter[bool] = Counter()
    is_fast_path = replies.is_fast_path

    def counted(reply: Any) -> bool:
        found = is_fast_path(reply)
        uses[found] += 1
        return found

    monkeypatch.setattr(replies, "is_fast_path", counted)
    monkeypatch.setattr(lease_store, "_SEEN_INTERVAL", 1e9)
    store, group = RedisLeaseStore(server, prefix=prefix), a_group(mode=mode, backoff=Backoff(jitter=0))
    await opened(store, group, queues(*[100_000] * 8))
    carried: dict[int, list[Settlement]] = {}

    for number in range(60):
        consumer = number % consumers
        if number == WARM:
            uses.clear()
        acquired = await ask(
            store,
            group,
            polled_by=f"c-{consumer}",
            carrying=carried.get(consumer, ()),
            has_other_waiters=has_other_waiters,
        )
        carried[consumer] = [ack for grant in acquired.grants for ack in acks_of(group.mode, grant)]

    assert uses == {True: 60 - WARM}


@pytest.mark.parametrize("server", ["alone"], indirect=True)
@pytest.mark.parametrize("mode", [Mode.QUEUE, Mode.MESSAGE])
async def test_optional_bounds_are_applied_only_if_they_change_the_grant(
    server: RedisClient, prefix: str, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Messages arrive all the time. The fast path must not end with every arrival, nor grant less because of it."""
    monkeypatch.setattr(lease_store, "_SEEN_INTERVAL", 1e9)
    store, group = RedisLeaseStore(server, prefix=prefix), a_group(mode=mode, backoff=Backoff(jitter=0))
    await opened(store, group, queues(20))
    # The first step records the poll of the client, the second one fills the indexes.
    carried: list[Settlement] = []
    for _ in range(2):
        carried = acks_of(mode, (await ask(store, group, max_count=4, carrying=carried)).grants[0])
    found = []
    for _ in range(4):
        step = AcquireRequest(
            group, "", 4, group.visibility, queues(24), "consumer", settlements=carried, are_bounds_optional=True
        )
        acquired = await store.acquire(step)
        (grant,) = acquired.grants
        found.append((grant.lease.start, grant.lease.next, acquired.are_bounds_applied))
        carried = acks_of(mode, grant)

    assert found == [(8, 12, False), (12, 16, False), (16, 20, False), (20, 24, True)]
