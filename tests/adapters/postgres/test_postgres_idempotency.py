"""Idempotency keys that several gateways share."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from eventually import until
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.idempotency import PostgresIdempotencyStore
from mqgate.adapters.postgres.presence import Presence
from mqgate.ports.idempotency import Claim, KeyRecord
from mqgate.testing.clock import ManualClock
from mqgate.testing.idempotency_contract import CLAIM, OTHER_BODY, WINDOW

OpenDatabase = Callable[..., Awaitable[Database]]
LEASE = timedelta(seconds=5)
# Longer than any test: nobody gets an answer here by waiting long enough.
SENDING = timedelta(minutes=5)


class Gateway:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.presence = Presence(database, lease=LEASE)
        self.keys = PostgresIdempotencyStore(database, self.presence, WINDOW, sending=SENDING)

    async def claim(self, claim: Claim = CLAIM) -> KeyRecord | None:
        (known,) = await self.keys.claim([claim])
        return known


@pytest.fixture
async def gateways(open_database: OpenDatabase) -> tuple[Gateway, Gateway]:
    """Two gateways, both of them just seen."""
    one, other = Gateway(await open_database()), Gateway(await open_database())
    await one.presence.run_once()
    await other.presence.run_once()
    return one, other


async def waiting(claim: Awaitable[Any]) -> asyncio.Future[Any]:
    """A claim that is not answered yet."""
    task = asyncio.ensure_future(claim)
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done
    return task


async def test_a_repeat_on_another_gateway_waits_for_the_answer(gateways: tuple[Gateway, Gateway]) -> None:
    """A client that lost patience with one gateway and asks the next: one message, one answer."""
    one, other = gateways
    await one.claim()
    repeat = await waiting(other.claim())

    await one.keys.complete([CLAIM], ["the answer"])

    assert await repeat == KeyRecord("digest", "the answer")


async def test_a_repeat_on_another_gateway_may_go_on_when_nothing_was_sent(gateways: tuple[Gateway, Gateway]) -> None:
    """Its turn, as if it had been the first."""
    one, other = gateways
    await one.claim()
    repeat = await waiting(other.claim())

    await one.keys.release([CLAIM])

    assert await repeat is None


async def test_a_repeat_of_what_a_dead_gateway_began_must_look_first(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """As soon as that one is known to be gone."""
    dead, other = gateways
    await dead.claim()
    repeat = await waiting(other.claim())

    clock.advance(LEASE)
    await other.presence.run_once()

    assert await repeat == KeyRecord("digest", None)


async def test_a_repeat_of_what_never_got_an_answer_must_look_first(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The gateway lives, but its broker never said whether it stored the message."""
    one, other = gateways
    one.presence._lease = timedelta(days=1)
    await one.presence.run_once()
    await one.claim()
    clock.advance(SENDING - timedelta(milliseconds=1))
    repeat = await waiting(other.claim())

    clock.advance(timedelta(milliseconds=1))

    assert await repeat == KeyRecord("digest", None)


async def test_nobody_waits_longer_than_a_publish_may_take(gateways: tuple[Gateway, Gateway]) -> None:
    """Also if the store's clock stands still."""
    one, other = gateways
    await one.claim()
    hasty = PostgresIdempotencyStore(other.database, other.presence, WINDOW, sending=timedelta(milliseconds=100))

    assert await hasty.claim([CLAIM]) == [KeyRecord("digest", None)]


async def test_what_is_ours_stays_ours_while_the_rest_of_a_batch_waits(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """Else a third gateway would take it over before it was ever sent."""
    one, other = gateways
    for gateway in gateways:
        gateway.presence._lease = timedelta(days=1)
        await gateway.presence.run_once()
    fresh = CLAIM._replace(key="fresh")
    await one.claim()
    batch = await waiting(other.keys.claim([fresh, CLAIM]))

    clock.advance(SENDING - timedelta(milliseconds=1))
    await until(lambda: is_renewed(one.database, clock))
    await one.keys.complete([CLAIM], ["the answer"])

    assert await batch == [None, KeyRecord("digest", "the answer")]
    clock.advance(timedelta(seconds=1))
    (await waiting(one.claim(fresh))).cancel()


async def is_renewed(database: Database, clock: ManualClock) -> bool:
    rows = await database.read(b"SELECT at FROM idempotency WHERE key = 'fresh'")
    return rows == [(clock.now,)]


async def test_a_gateway_need_not_wait_for_itself(gateways: tuple[Gateway, Gateway]) -> None:
    """It knows that nobody of its own is publishing under the key."""
    one, _ = gateways
    await one.claim()

    assert await one.claim() == KeyRecord("digest", None)


async def test_another_body_is_refused_without_waiting(gateways: tuple[Gateway, Gateway]) -> None:
    """Whatever becomes of the first, the second is not the same."""
    one, other = gateways
    await one.claim()

    assert await other.claim(OTHER_BODY) == KeyRecord("digest", None)


async def test_of_two_gateways_that_race_one_wins_every_key(gateways: tuple[Gateway, Gateway]) -> None:
    """Batches with the same keys in opposite orders: nobody waits for ever, every key is published once."""
    claims = [CLAIM._replace(key=f"k{number}") for number in range(100)]

    async def publish(gateway: Gateway, some: list[Claim]) -> list[str]:
        known = await gateway.keys.claim(some)
        mine = [claim for claim, each in zip(some, known, strict=True) if each is None]
        await gateway.keys.complete(mine, [claim.key for claim in mine])
        return [claim.key for claim in mine]

    found = await asyncio.gather(*(publish(gateways[turn % 2], claims[:: 1 if turn % 3 else -1]) for turn in range(12)))

    assert sorted(key for some in found for key in some) == sorted(claim.key for claim in claims)
    assert await gateways[0].keys.claim(claims) == [KeyRecord("digest", claim.key) for claim in claims]


async def test_a_slow_gateway_frees_nobody_elses_key(gateways: tuple[Gateway, Gateway], clock: ManualClock) -> None:
    """It was taken over meanwhile, and its message may be on its way."""
    slow, other = gateways
    await slow.claim()
    clock.advance(SENDING)
    await other.presence.run_once()
    await other.claim()

    await slow.keys.release([CLAIM])

    assert await other.claim() == KeyRecord("digest", None)


async def test_a_slow_answer_is_not_given_to_another_body(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The window is over and the key is used for something else."""
    slow, other = gateways
    await slow.claim()
    clock.advance(WINDOW)
    await other.claim(OTHER_BODY)

    await slow.keys.complete([CLAIM], ["the answer"])
    await other.keys.complete([OTHER_BODY], ["the other answer"])

    assert await other.claim(OTHER_BODY) == KeyRecord("other", "the other answer")


async def test_a_key_twice_in_one_call_is_used_twice(gateways: tuple[Gateway, Gateway]) -> None:
    """One after the other, as in two calls."""
    assert await gateways[0].keys.claim([CLAIM, CLAIM, OTHER_BODY]) == [
        None,
        KeyRecord("digest", None),
        KeyRecord("digest", None),
    ]


async def test_a_forgotten_topic_leaves_no_keys(gateways: tuple[Gateway, Gateway]) -> None:
    """And takes nobody else's with it."""
    one, other = gateways
    elsewhere = CLAIM._replace(topic="elsewhere")
    await one.keys.claim([CLAIM, elsewhere])
    await one.keys.complete([CLAIM, elsewhere], ["here", "there"])

    await other.keys.forget("orders")

    assert await other.keys.claim([CLAIM, elsewhere]) == [None, KeyRecord("digest", "there")]


async def test_tidying_forgets_no_key_within_its_window(gateways: tuple[Gateway, Gateway], clock: ManualClock) -> None:
    """It frees disk, it does not shorten the promise."""
    one, other = gateways
    await one.claim()
    await one.keys.complete([CLAIM], ["the answer"])
    clock.advance(WINDOW - timedelta(milliseconds=1))

    await asyncio.gather(one.keys.tidy(), other.keys.tidy())
    within = await one.claim()
    clock.advance(WINDOW)
    await asyncio.gather(one.keys.tidy(), other.keys.tidy())

    assert within == KeyRecord("digest", "the answer")
    assert await one.database.read(b"SELECT count(*) FROM idempotency") == [(0,)]
