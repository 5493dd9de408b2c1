"""Publish: limits first, then the log, and an outcome for every message."""

from collections.abc import Callable, Sequence
from datetime import datetime

from mqgate.core.entries import Producer, Topic
from mqgate.core.errors import MqgateError, RateLimited
from mqgate.core.message import Draft, Stored, milliseconds
from mqgate.core.tokens import Bucket
from mqgate.ports.message_log import MessageLog
from mqgate.telemetry.metrics import Metrics


class Publisher:
    """One gateway's way in. A producer's rate is kept per gateway; one gateway is all the embedded engine has."""

    def __init__(self, log: MessageLog, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    async def publish(
        self, topic: Topic, producer: Producer | None, drafts: Sequence[Draft]
    ) -> list[Stored | MqgateError]:
        """Store messages; those over the producer's rate are refused one by one, the last ones first."""
        allowed, refusal = self._allow(producer, len(drafts))
        stored: list[Stored | MqgateError] = []
        if allowed:
            stored += await self._log.append(topic.name, drafts[:allowed])
            self._metrics.published.labels(topic.name).inc(allowed)
        if refusal is not None:
            stored += [refusal] * (len(drafts) - allowed)
        return stored

    def _allow(self, producer: Producer | None, count: int) -> tuple[int, RateLimited | None]:
        if producer is None or producer.rate_limit is None:
            return count, None
        limit = producer.rate_limit
        now_ms = milliseconds(self._clock())
        bucket = self._buckets.get(producer.name, Bucket.full(limit, now_ms)).at(limit, now_ms)
        allowed = min(count, int(bucket.tokens))
        bucket = self._buckets[producer.name] = bucket.take(allowed)
        if allowed == count:
            return count, None
        wait = bucket.wait_ms(limit, 1) / 1000
        return allowed, RateLimited(
            f"producer {producer.name} may publish {limit.rate:g} messages a second", retry_after=wait
        )
