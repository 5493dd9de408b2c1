"""Publish: the producer's rate first, then the keys' memory, then the store; an outcome for every message."""

from collections.abc import Coroutine, Sequence
from typing import Any

from mqgate.core.entries import Producer, Topic
from mqgate.core.errors import MqgateError, RateLimited
from mqgate.production.idempotency import IdempotentPublisher
from mqgate.production.message_writer import Item, MessageWriter, Published
from mqgate.production.rate_limiter import ProducerRateLimiter


class Publisher:
    """One gateway's way in."""

    def __init__(self, store: MessageWriter, once: IdempotentPublisher, slices: ProducerRateLimiter) -> None:
        self._store = store
        self._once = once
        self._slices = slices

    def publish(
        self, topic: Topic, producer: Producer | None, items: Sequence[Item]
    ) -> Coroutine[Any, Any, list[Published | MqgateError]]:
        """Store messages; those over the producer's rate are refused one by one, the last ones first."""
        is_limited = producer is not None and producer.rate_limit is not None
        for item in items:
            if is_limited or item[2] is not None:
                return self._publish(topic, producer, items)
        # Nothing to ask first: no layer in between either.
        return self._store.store(topic, items, "" if producer is None else producer.name)

    async def _publish(
        self, topic: Topic, producer: Producer | None, items: Sequence[Item]
    ) -> list[Published | MqgateError]:
        allowed, refusal = await self._allow(producer, len(items))
        name = "" if producer is None else producer.name
        outcomes: list[Published | MqgateError] = []
        if any(item.idempotency_key is not None for item in items[:allowed]):
            outcomes += await self._once.store(topic, items[:allowed], name)
        elif allowed:
            outcomes += await self._store.store(topic, items[:allowed], name)
        if refusal is not None:
            outcomes += [refusal] * (len(items) - allowed)
        return outcomes

    async def _allow(self, producer: Producer | None, count: int) -> tuple[int, RateLimited | None]:
        if producer is None or producer.rate_limit is None:
            return count, None
        limit = producer.rate_limit
        allowed, wait = await self._slices.take(producer.name, limit, count)
        if allowed == count:
            return count, None
        return allowed, RateLimited(
            f"producer {producer.name} may publish {limit.rate:g} messages a second", retry_after=wait
        )
