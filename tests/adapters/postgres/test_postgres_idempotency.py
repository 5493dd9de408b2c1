"""Idempotency keys that several gateways use."""

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
# Longer than any test, so that no claim is taken over because its time is over.
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
    """Return two gateways that have sent a heartbeat."""
    one, other = Gateway(await open_database()), Gateway(await open_database())
    await one.presence.run_once()
    await other.presence.run_once()
    return one, other


async def waiting(claim: Awaitable[Any]) -> asyncio.Future[Any]:
    """Start a claim and return it while it waits."""
    task = asyncio.ensure_future(claim)
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done
    return task


async def test_a_repeat_on_another_gateway_waits_for_the_response(gateways: tuple[Gateway, Gateway]) -> None:
    """A client may retry on another gateway after a timeout: the message must be stored once."""
    one, other = gateways
    await one.claim()
    repeat = await waiting(other.claim())

    await one.keys.complete([CLAIM], ["the response"])

    assert await repeat == KeyRecord("digest", "the response")


async def test_a_repeat_on_another_gateway_proceeds_after_a_release(gateways: tuple[Gateway, Gateway]) -> None:
    """Nothing was sent, so the repeat must publish as if it were the first."""
    one, other = gateways
    await one.claim()
    repeat = await waiting(other.claim())

    await one.keys.release([CLAIM])

    assert await repeat is None


async def test_a_repeat_after_a_crash_must_search_the_log_first(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The crashed gateway may have stored the message."""
    dead, other = gateways
    await dead.claim()
    repeat = await waiting(other.claim())

    clock.advance(LEASE)
    await other.presence.run_once()

    assert await repeat == KeyRecord("digest", None)


async def test_a_repeat_of_an_unanswered_publish_must_search_the_log_first(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The gateway is alive, but its broker never confirmed the message."""
    one, other = gateways
    one.presence._lease = timedelta(days=1)
    await one.presence.run_once()
    await one.claim()
    clock.advance(SENDING - timedelta(milliseconds=1))
    repeat = await waiting(other.claim())

    clock.advance(timedelta(milliseconds=1))

    assert await repeat == KeyRecord("digest", None)


async def test_a_claim_waits_no_longer_than_a_publish_can_take(gateways: tuple[Gateway, Gateway]) -> None:
    """The limit must hold even if the clock of the store stands still."""
    one, other = gateways
    await one.claim()
    hasty = PostgresIdempotencyStore(other.database, other.presence, WINDOW, sending=timedelta(milliseconds=100))

    assert await hasty.claim([CLAIM]) == [KeyRecord("digest", None)]


async def test_claimed_keys_are_kept_while_others_of_the_batch_wait(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """Otherwise a third gateway would take over a key before its message was sent."""
    one, other = gateways
    for gateway in gateways:
        gateway.presence._lease = timedelta(days=1)
        await gateway.presence.run_once()
    fresh = CLAIM._replace(key="fresh")
    await one.claim()
    batch = await waiting(other.keys.claim([fresh, CLAIM]))

    clock.advance(SENDING - timedelta(milliseconds=1))
    await until(lambda: is_renewed(one.database, clock))
    await one.keys.complete([CLAIM], ["the response"])

    assert await batch == [None, KeyRecord("digest", "the response")]
    clock.advance(timedelta(seconds=1))
    (await waiting(one.claim(fresh))).cancel()


async def is_renewed(database: Database, clock: ManualClock) -> bool:
    rows = await database.read(b"SELECT at FROM idempotency WHERE key = 'fresh'")
    return rows == [(clock.now,)]


async def test_a_gateway_does_not_wait_for_its_own_claim(gateways: tuple[Gateway, Gateway]) -> None:
    """The caller has made sure that it is not publishing under the key."""
    one, _ = gateways
    await one.claim()

    assert await one.claim() == KeyRecord("digest", None)


async def test_another_body_is_refused_without_waiting(gateways: tuple[Gateway, Gateway]) -> None:
    """The result of the first publish cannot apply to another body."""
    one, other = gateways
    await one.claim()

    assert await other.claim(OTHER_BODY) == KeyRecord("digest", None)


async def test_concurrent_gateways_claim_every_key_once(gateways: tuple[Gateway, Gateway]) -> None:
    """Batches with the same keys in opposite order must not deadlock, and every key is published once."""
    claims = [CLAIM._replace(key=f"k{number}") for number in range(100)]

    async def publish(gateway: Gateway, batch: list[Claim]) -> list[str]:
        known = await gateway.keys.claim(batch)
        mine = [claim for claim, record in zip(batch, known, strict=True) if record is None]
        await gateway.keys.complete(mine, [claim.key for claim in mine])
        return [claim.key for claim in mine]

    found = await asyncio.gather(*(publish(gateways[turn % 2], claims[:: 1 if turn % 3 else -1]) for turn in range(12)))

    assert sorted(key for keys in found for key in keys) == sorted(claim.key for claim in claims)
    assert await gateways[0].keys.claim(claims) == [KeyRecord("digest", claim.key) for claim in claims]


async def test_a_slow_gateway_cannot_release_a_key_that_was_taken_over(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The message of the new owner may be in transit."""
    slow, other = gateways
    await slow.claim()
    clock.advance(SENDING)
    await other.presence.run_once()
    await other.claim()

    await slow.keys.release([CLAIM])

    assert await other.claim() == KeyRecord("digest", None)


async def test_a_late_response_is_not_stored_for_another_body(
    gateways: tuple[Gateway, Gateway], clock: ManualClock
) -> None:
    """The window is over and the key was used for another message."""
    slow, other = gateways
    await slow.claim()
    clock.advance(WINDOW)
    await other.claim(OTHER_BODY)

    await slow.keys.complete([CLAIM], ["the response"])
    await other.keys.complete([OTHER_BODY], ["the other response"])

    assert await other.claim(OTHER_BODY) == KeyRecord("other", "the other response")


async def test_a_key_twice_in_one_call_is_claimed_twice(gateways: tuple[Gateway, Gateway]) -> None:
    """The result must be that of two calls."""
    assert await gateways[0].keys.claim([CLAIM, CLAIM, OTHER_BODY]) == [
        None,
        KeyRecord("digest", None),
        KeyRecord("digest", None),
    ]


async def test_deleting_a_topic_deletes_its_keys_only(gateways: tuple[Gateway, Gateway]) -> None:
    """Keys of other topics must stay."""
    one, other = gateways
    elsewhere = CLAIM._replace(topic="elsewhere")
    await one.keys.claim([CLAIM, elsewhere])
    await one.keys.complete([CLAIM, elsewhere], ["here", "there"])

    await other.keys.forget("orders")

    assert await other.keys.claim([CLAIM, elsewhere]) == [None, KeyRecord("digest", "there")]


async def test_tidying_keeps_keys_within_their_window(gateways: tuple[Gateway, Gateway], clock: ManualClock) -> None:
    """Cleaning up must not shorten the guaranteed window."""
    one, other = gateways
    await one.claim()
    await one.keys.complete([CLAIM], ["the response"])
    clock.advance(WINDOW - timedelta(milliseconds=1))

    await asyncio.gather(one.keys.tidy(), other.keys.tidy())
    within = await one.claim()
    clock.advance(WINDOW)
    await asyncio.gather(one.keys.tidy(), other.keys.tidy())

    assert within == KeyRecord("digest", "the response")
    assert await one.database.read(b"SELECT count(*) FROM idempotency") == [(0,)]
