"""What every memory of idempotency keys promises."""

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
    """An adapter passes by providing `store`, empty, whose window is WINDOW, `clock` and `reopen`."""

    async def test_a_fresh_key_is_yours(self, store: IdempotencyStore) -> None:
        """Per topic and key, each for itself."""
        claims = [CLAIM, CLAIM._replace(topic="others"), CLAIM._replace(key="k2")]

        assert list(await store.claim(claims)) == [None, None, None]

    async def test_a_repeat_gets_the_first_answer_also_after_a_restart(
        self, store: IdempotencyStore, reopen: Reopen
    ) -> None:
        """What was answered is answered again."""
        await _claim(store)
        await store.complete([CLAIM], ["the answer"])

        assert await _claim(store) == KeyRecord("digest", "the answer")
        assert await _claim(await reopen()) == KeyRecord("digest", "the answer")

    async def test_another_body_learns_which_one_the_key_was_used_for(self, store: IdempotencyStore) -> None:
        """So that it can be refused; and the first answer stays."""
        await _claim(store)
        await store.complete([CLAIM], ["the answer"])

        assert await _claim(store, OTHER_BODY) == KeyRecord("digest", "the answer")
        assert await _claim(store) == KeyRecord("digest", "the answer")

    async def test_a_key_whose_publish_never_ended_is_yours_with_a_warning(
        self, store: IdempotencyStore, reopen: Reopen
    ) -> None:
        """Its process is gone: the message may be there or not, who asks must look."""
        await _claim(store)
        again = await reopen()

        assert await _claim(again) == KeyRecord("digest", None)
        assert (await _claim(again, OTHER_BODY)) == KeyRecord("digest", None)

    async def test_a_released_key_is_free_for_any_body(self, store: IdempotencyStore) -> None:
        """Nothing was sent under it."""
        await _claim(store)
        await store.release([CLAIM])

        assert await _claim(store, OTHER_BODY) is None

    async def test_an_answered_key_cannot_be_released(self, store: IdempotencyStore) -> None:
        """Something was sent under it."""
        await _claim(store)
        await store.complete([CLAIM], ["the answer"])

        await store.release([CLAIM])

        assert await _claim(store) == KeyRecord("digest", "the answer")

    async def test_a_key_is_remembered_for_the_window_and_then_free(
        self, store: IdempotencyStore, clock: ManualClock
    ) -> None:
        """To the millisecond, and counted from its first use, not from a repeat."""
        await _claim(store)
        await store.complete([CLAIM], ["the answer"])
        clock.advance(WINDOW - timedelta(milliseconds=1))

        within = await _claim(store, OTHER_BODY)
        clock.advance(timedelta(milliseconds=1))

        assert within == KeyRecord("digest", "the answer")
        assert await _claim(store, OTHER_BODY) is None

    async def test_of_many_claims_at_once_one_is_first(self, store: IdempotencyStore) -> None:
        """The others know of it."""
        found = await asyncio.gather(*(_claim(store) for _ in range(20)))

        assert [known for known in found if known is None] == [None]
        assert {known for known in found if known is not None} == {KeyRecord("digest", None)}
