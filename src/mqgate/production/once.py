"""Idempotent publish: the same key and body within the window is the same message.

    another request of this gateway is publishing under the key -> wait for it, then answer as it did
    the key is recorded with an answer   -> that answer, `duplicate` (another body: IdempotencyMismatch)
    recorded without one                 -> its process died: look whether the message is there, publish if not
    not recorded                         -> record it, publish, record the answer
The id is derived from topic, key and body, so it is the same even when the window or the store is lost.
"""

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from mqgate.core.entries import Topic
from mqgate.core.errors import IdempotencyMismatch, MqgateError
from mqgate.ports.idempotency import Claim, IdempotencyStore
from mqgate.production.store import Item, Published, Storekeeper

Outcome = Published | MqgateError
_answer = msgspec.json.Decoder(Published)


def derived_id(topic: str, key: str, body: bytes) -> str:
    """32 hex digits, the same for the same topic, key and body."""
    digest = hashlib.sha256()
    for part in (topic.encode(), key.encode(), body):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:32]


class Once:
    def __init__(self, store: Storekeeper, keys: IdempotencyStore) -> None:
        self._store = store
        self._keys = keys
        self._under_way: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def store(self, topic: Topic, items: Sequence[Item]) -> list[Outcome]:
        """Store items, those with a key once; an outcome each, in their order."""
        outcomes: dict[int, Outcome] = {}
        waiting = dict(enumerate(items))
        while waiting:
            mine: dict[int, Item] = {}
            keys: set[str] = set()
            for index, item in waiting.items():
                key = item.idempotency_key
                if key is None:
                    mine[index] = item
                elif key not in keys and (topic.name, key) not in self._under_way:
                    keys.add(key)
                    mine[index] = item
            if mine:
                outcomes |= await self._turn(topic, mine, keys)
                waiting = {index: item for index, item in waiting.items() if index not in mine}
            else:
                first = next(iter(waiting.values())).idempotency_key
                await asyncio.wait({self._under_way[topic.name, str(first)]})
        return [outcomes[index] for index in range(len(items))]

    async def _turn(self, topic: Topic, mine: dict[int, Item], keys: set[str]) -> dict[int, Outcome]:
        """Publish items whose keys nobody else of this gateway uses now."""
        done = asyncio.get_running_loop().create_future()
        self._under_way |= {(topic.name, key): done for key in keys}
        try:
            return await self._decide(topic, mine)
        finally:
            for key in keys:
                del self._under_way[topic.name, key]
            done.set_result(None)

    async def _decide(self, topic: Topic, mine: dict[int, Item]) -> dict[int, Outcome]:
        claims = {index: _claim(topic, item) for index, item in mine.items() if item.idempotency_key is not None}
        outcomes: dict[int, Outcome] = {}
        fresh = {index: item for index, item in mine.items() if index not in claims}
        ours: dict[int, Claim] = {}
        known = await self._keys.claim(list(claims.values())) if claims else ()
        for (index, claim), before in zip(claims.items(), known, strict=True):
            if before is not None and before.digest != claim.digest:
                outcomes[index] = IdempotencyMismatch(
                    "use a new key for another body, or send the first body again", field="idempotencyKey"
                )
            elif before is not None and before.answer is not None:
                outcomes[index] = _answer.decode(before.answer)._replace(is_duplicate=True)
            else:
                there = None if before is None else await self._store.find(topic, mine[index].draft.id)
                ours[index] = claim
                if there is None:
                    fresh[index] = mine[index]
                else:
                    outcomes[index] = there._replace(is_duplicate=True)
        order = sorted(fresh)
        try:
            published = await self._store.store(topic, [fresh[index] for index in order]) if order else []
        except MqgateError:
            # Some of a batch may be stored although the rest failed: those keys stay taken, and a repeat will look.
            unsent = [each for each in order if each in ours and await self._is_unsent(topic, fresh[each])]
            await self._keys.release([ours[index] for index in unsent])
            raise
        outcomes |= dict(zip(order, published, strict=True))
        if ours:
            answers = [msgspec.json.encode(outcomes[index]).decode() for index in ours]
            await self._keys.complete(list(ours.values()), answers)
        return outcomes

    async def _is_unsent(self, topic: Topic, item: Item) -> bool:
        return await self._store.find(topic, item.draft.id) is None


def _claim(topic: Topic, item: Item) -> Claim:
    digest = hashlib.sha256(item.draft.body).hexdigest()
    return Claim(topic.name, str(item.idempotency_key), digest, item.draft.id)
