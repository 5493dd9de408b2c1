"""Idempotent publish: the same key and body within the window is the same message.

    another request of this gateway is publishing under the key -> wait for it, then answer as it did
    the key is recorded with an answer   -> that answer, `duplicate` (another body: IdempotencyMismatch)
    recorded without one                 -> its process died, or nobody answered it: look whether the message is there,
                                            publish if not
    not recorded                         -> record it, publish, record the answer; what still waits for its time from an
                                            earlier use of the key is not scheduled beside itself
    certainly not stored                 -> the key is free again
    not known whether it was (`unknown`) -> the key stays taken without an answer, so that a repeat looks
The id is derived from topic, key and body, so it is the same even when the window or the store is lost.
"""

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from mqgate.core.entries import Topic
from mqgate.core.errors import IdempotencyMismatch, MqgateError, OutcomeUnknown
from mqgate.ports.idempotency import Claim, IdempotencyStore, KeyRecord
from mqgate.production.message_writer import Item, MessageWriter, Published

PublishOutcome = Published | MqgateError
_answer = msgspec.json.Decoder(Published)


def derived_id(topic: str, key: str, body: bytes) -> str:
    """32 hex digits, the same for the same topic, key and body."""
    digest = hashlib.sha256()
    for part in (topic.encode(), key.encode(), body):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:32]


class IdempotentPublisher:
    def __init__(self, store: MessageWriter, keys: IdempotencyStore) -> None:
        self._store = store
        self._keys = keys
        self._under_way: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def store(self, topic: Topic, items: Sequence[Item], producer: str = "") -> list[PublishOutcome]:
        """Store items, those with a key once; an outcome each, in their order."""
        outcomes: dict[int, PublishOutcome] = {}
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
                outcomes |= await self._turn(topic, mine, keys, producer)
                waiting = {index: item for index, item in waiting.items() if index not in mine}
            else:
                first = next(iter(waiting.values())).idempotency_key
                await asyncio.wait({self._under_way[topic.name, str(first)]})
        return [outcomes[index] for index in range(len(items))]

    async def _turn(
        self, topic: Topic, mine: dict[int, Item], keys: set[str], producer: str
    ) -> dict[int, PublishOutcome]:
        """Publish items whose keys nobody else of this gateway uses now."""
        done = asyncio.get_running_loop().create_future()
        self._under_way |= {(topic.name, key): done for key in keys}
        try:
            return await self._decide(topic, mine, producer)
        finally:
            for key in keys:
                del self._under_way[topic.name, key]
            done.set_result(None)

    async def _decide(self, topic: Topic, mine: dict[int, Item], producer: str) -> dict[int, PublishOutcome]:
        fresh = {index: item for index, item in mine.items() if item.idempotency_key is None}
        claims = {index: _claim(topic, item) for index, item in mine.items() if index not in fresh}
        known = await self._keys.claim(list(claims.values())) if claims else ()
        before = dict(zip(claims, known, strict=True))
        outcomes: dict[int, PublishOutcome] = {}
        for index, claim in claims.items():
            answer = await self._known(topic, claim, before[index])
            if before[index] is None and mine[index].due is not None:
                answer = await self._store.waiting(claim.id)
            if answer is None:
                fresh[index] = mine[index]
            else:
                outcomes[index] = answer
        outcomes |= await self._publish(topic, fresh, claims, producer)
        await self._keep(claims, before, outcomes)
        return outcomes

    async def _known(self, topic: Topic, claim: Claim, before: KeyRecord | None) -> PublishOutcome | None:
        """What a key's earlier use says about this one; None: publish it."""
        if before is None:
            return None
        if before.digest != claim.digest:
            return IdempotencyMismatch(
                "use a new key for another body, or send the first body again", field="idempotencyKey"
            )
        if before.answer is not None:
            return _answer.decode(before.answer)._replace(is_duplicate=True)
        try:
            there = await self._store.find(topic, claim.id)
        except MqgateError as error:
            # Nobody can tell now whether it is there: neither publish nor forget it.
            return error
        return None if there is None else there._replace(is_duplicate=True)

    async def _publish(
        self, topic: Topic, fresh: dict[int, Item], claims: dict[int, Claim], producer: str
    ) -> dict[int, PublishOutcome]:
        order = sorted(fresh)
        if not order:
            return {}
        try:
            published = await self._store.store(topic, [fresh[index] for index in order], producer)
        except OutcomeUnknown:
            raise
        except MqgateError:
            # Some of a batch may be stored although the rest failed: those keys stay taken, and a repeat will look.
            unsent = [each for each in order if each in claims and await self._is_unsent(topic, claims[each])]
            await self._keys.release([claims[index] for index in unsent])
            raise
        return dict(zip(order, published, strict=True))

    async def _keep(
        self, claims: dict[int, Claim], before: dict[int, KeyRecord | None], outcomes: dict[int, PublishOutcome]
    ) -> None:
        """Record the answers of keys that have one now, and free those whose message was certainly never stored."""
        mine = {
            index: outcomes[index]
            for index, known in before.items()
            if known is None or (known.answer is None and known.digest == claims[index].digest)
        }
        done = {index: each for index, each in mine.items() if not isinstance(each, MqgateError)}
        if done:
            answers = [msgspec.json.encode(each).decode() for each in done.values()]
            await self._keys.complete([claims[index] for index in done], answers)
        # A key that was used before may still have its message on the way: it stays taken.
        unsent = [
            claims[index]
            for index, each in mine.items()
            if before[index] is None and isinstance(each, MqgateError) and not isinstance(each, OutcomeUnknown)
        ]
        if unsent:
            await self._keys.release(unsent)

    async def _is_unsent(self, topic: Topic, claim: Claim) -> bool:
        try:
            return await self._store.find(topic, claim.id) is None
        except MqgateError:
            return False


def _claim(topic: Topic, item: Item) -> Claim:
    digest = hashlib.sha256(item.draft.body).hexdigest()
    return Claim(topic.name, str(item.idempotency_key), digest, item.draft.id)
