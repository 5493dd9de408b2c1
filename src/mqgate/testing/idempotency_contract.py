"""The contract of idempotency stores."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from mqgate.ports.idempotency import Claim, IdempotencyStore, KeyRecord
from mqgate.testing.clock import ManualClock

__all__ = ["IdempotencyContract"]

Reopen = Callable[[], Awaitable[IdempotencyStore]]
WINDOW = timedelta(minutes=10)
CLAIM = Claim("orders", "k1", "digest", "id1")
OTHER_BODY = CLAIM._replace(digest="other", id="id2")


async def _claim(store: IdempotencyStore, claim: Claim = CLAIM) -> KeyRecord | None:
    (known,) = await store.claim([claim])
    return known


class IdempotencyContract:
    """Tests of an idempotency store. An adapter provides `store` (empty, with window WINDOW), `clock` and `reopen`."""

    async def test_a_new_key_can_be_claimed(self, store: IdempotencyStore) -> None:
        """Keys of different topics must not conflict."""
        claims = [CLAIM, CLAIM._replace(topic="others"), CLAIM._replace(key="k2")]

        assert list(await store.claim(claims)) == [None, None, None]

    async def test_a_repeat_returns_the_first_response_after_a_restart(
        self, store: IdempotencyStore, reopen: Reopen
    ) -> None:
        """A client that repeats a publish must get the same response."""
        await _claim(store)
        await store.complete([CLAIM], ["the response"])

        assert await _claim(store) == KeyRecord("digest", "the response")
        assert await _claim(await reopen()) == KeyRecord("digest", "the response")

    async def test_a_claim_with_another_digest_returns_the_first_digest(self, store: IdempotencyStore) -> None:
        """The caller rejects the publish, and the first response must stay."""
        await _claim(store)
        await store.complete([CLAIM], ["the response"])

        assert await _claim(store, OTHER_BODY) == KeyRecord("digest", "the response")
        assert await _claim(store) == KeyRecord("digest", "the response")

    async def test_a_key_of_an_unfinished_publish_is_returned_without_a_response(
        self, store: IdempotencyStore, reopen: Reopen
    ) -> None:
        """Its gateway stopped. The caller must check whether the message was stored."""
        await _claim(store)
        again = await reopen()

        assert await _claim(again) == KeyRecord("digest", None)
        assert (await _claim(again, OTHER_BODY)) == KeyRecord("digest", None)

    async def test_a_released_key_can_be_claimed_with_any_digest(self, store: IdempotencyStore) -> None:
        """Nothing was published under the key."""
        await _claim(store)
        await store.release([CLAIM])

        assert await _claim(store, OTHER_BODY) is None

    async def test_a_completed_key_cannot_be_released(self, store: IdempotencyStore) -> None:
        """A message was published under the key."""
        await _claim(store)
        await store.complete([CLAIM], ["the response"])

        await store.release([CLAIM])

        assert await _claim(store) == KeyRecord("digest", "the response")

    async def test_a_key_is_kept_for_exactly_the_window(self, store: IdempotencyStore, clock: ManualClock) -> None:
        """The window starts with the first use, not with a repeat."""
        await _claim(store)
        await store.complete([CLAIM], ["the response"])
        clock.advance(WINDOW - timedelta(milliseconds=1))

        within = await _claim(store, OTHER_BODY)
        clock.advance(timedelta(milliseconds=1))

        assert within == KeyRecord("digest", "the response")
        assert await _claim(store, OTHER_BODY) is None

    async def test_of_concurrent_claims_exactly_one_is_new(self, store: IdempotencyStore) -> None:
        """Two concurrent publishes with one key must store one message."""
        found = await asyncio.gather(*(_claim(store) for _ in range(20)))

        assert [known for known in found if known is None] == [None]
        assert {known for known in found if known is not None} == {KeyRecord("digest", None)}
