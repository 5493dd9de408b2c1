"""Idempotent publish: the same key and body within the window is the same message.

    another request of this gateway publishes under the key -> wait for it, then use its response
    the key is recorded with a response  -> that response, `duplicate` (another body: IdempotencyMismatch)
    recorded without a response          -> its process stopped, or its outcome is unknown: look the message up, and
                                            publish it if it is not stored
    not recorded                         -> record the key, publish, record the response; a message that is still
                                            scheduled from an earlier use of the key is not scheduled twice
    certainly not stored                 -> the key is released
    unknown whether stored (`unknown`)   -> the key stays claimed without a response, so that a repeat looks it up

The id is derived from topic, key and body, so it stays the same even if the window or the store is lost.
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
_response = msgspec.json.Decoder(Published)


def derived_id(topic: str, key: str, body: bytes) -> str:
    """Return 32 hex digits that depend on topic, key and body only."""
    digest = hashlib.sha256()
    for part in (topic.encode(), key.encode(), body):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:32]


class IdempotentPublisher:
    def __init__(self, writer: MessageWriter, keys: IdempotencyStore) -> None:
        self._writer = writer
        self._keys = keys
        self._under_way: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def write(self, topic: Topic, items: Sequence[Item], producer: str = "") -> list[PublishOutcome]:
        """Write messages, once per idempotency key; return one outcome per message in the order given."""
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
                outcomes |= await self._publish_claimed(topic, mine, keys, producer)
                waiting = {index: item for index, item in waiting.items() if index not in mine}
            else:
                first = next(iter(waiting.values())).idempotency_key
                await asyncio.wait({self._under_way[topic.name, str(first)]})
        return [outcomes[index] for index in range(len(items))]

    async def _publish_claimed(
        self, topic: Topic, mine: dict[int, Item], keys: set[str], producer: str
    ) -> dict[int, PublishOutcome]:
        """Publish messages whose keys no other request of this gateway is using."""
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
            outcome = await self._known(topic, claim, before[index])
            if before[index] is None and mine[index].due is not None:
                outcome = await self._writer.find_scheduled(claim.id)
            if outcome is None:
                fresh[index] = mine[index]
            else:
                outcomes[index] = outcome
        outcomes |= await self._publish(topic, fresh, claims, producer)
        await self._keep(claims, before, outcomes)
        return outcomes

    async def _known(self, topic: Topic, claim: Claim, before: KeyRecord | None) -> PublishOutcome | None:
        """Return the outcome that an earlier use of the key decides, or None to publish the message."""
        if before is None:
            return None
        if before.digest != claim.digest:
            return IdempotencyMismatch(
                "use a new key for another body, or send the first body again", field="idempotencyKey"
            )
        if before.response is not None:
            return _response.decode(before.response)._replace(is_duplicate=True)
        try:
            found = await self._writer.find(topic, claim.id)
        except MqgateError as error:
            # The outcome is still unknown: keep the claim, do not publish.
            return error
        return None if found is None else found._replace(is_duplicate=True)

    async def _publish(
        self, topic: Topic, fresh: dict[int, Item], claims: dict[int, Claim], producer: str
    ) -> dict[int, PublishOutcome]:
        order = sorted(fresh)
        if not order:
            return {}
        try:
            published = await self._writer.write(topic, [fresh[index] for index in order], producer)
        except OutcomeUnknown:
            raise
        except MqgateError:
            # Part of a batch may be stored although the rest failed. Those keys stay claimed.
            unsent = [index for index in order if index in claims and await self._is_unsent(topic, claims[index])]
            await self._keys.release([claims[index] for index in unsent])
            raise
        return dict(zip(order, published, strict=True))

    async def _keep(
        self, claims: dict[int, Claim], before: dict[int, KeyRecord | None], outcomes: dict[int, PublishOutcome]
    ) -> None:
        """Record the responses of published keys, and release the keys of messages that were certainly not stored."""
        mine = {
            index: outcomes[index]
            for index, known in before.items()
            if known is None or (known.response is None and known.digest == claims[index].digest)
        }
        done = {index: outcome for index, outcome in mine.items() if not isinstance(outcome, MqgateError)}
        if done:
            responses = [msgspec.json.encode(outcome).decode() for outcome in done.values()]
            await self._keys.complete([claims[index] for index in done], responses)
        # The message of an earlier use of the key may still be in flight: that key stays claimed.
        unsent = [
            claims[index]
            for index, outcome in mine.items()
            if before[index] is None and isinstance(outcome, MqgateError) and not isinstance(outcome, OutcomeUnknown)
        ]
        if unsent:
            await self._keys.release(unsent)

    async def _is_unsent(self, topic: Topic, claim: Claim) -> bool:
        try:
            return await self._writer.find(topic, claim.id) is None
        except MqgateError:
            return False


def _claim(topic: Topic, item: Item) -> Claim:
    digest = hashlib.sha256(item.draft.body).hexdigest()
    return Claim(topic.name, str(item.idempotency_key), digest, item.draft.id)
