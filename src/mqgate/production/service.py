"""The use case of a producer: publish messages.

    producer named?      it must be registered and belong to the topic
    rate limit           the first messages that fit are accepted, the rest are refused
    idempotency keys     a message with a known key is not stored again
    no due time          the message is appended to the log
    due time             the message is stored as a timer

A message that could not be decoded takes part as its error, so that each message has one outcome in the order given.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from mqgate.core.entries import Producer, Snapshot, Topic
from mqgate.core.errors import Forbidden, MqgateError, RateLimited
from mqgate.events.recorder import EventRecorder
from mqgate.ports.message_log import MessageLog
from mqgate.production.idempotency import IdempotentPublisher, PublishOutcome
from mqgate.production.message_writer import Item, MessageWriter, Published
from mqgate.production.rate_limiter import ProducerRateLimiter
from mqgate.telemetry.metrics import Metrics

__all__ = ["ProductionService", "Registrations"]


class Registrations(Protocol):
    """Registered topics and producers. Names that are not known here are looked up in the store."""

    @property
    def snapshot(self) -> Snapshot: ...

    async def topic(self, name: str) -> Topic:
        """Return a topic, or raise TopicNotFound."""

    async def producer(self, name: str) -> Producer:
        """Return a producer, or raise ProducerNotFound."""


class ProductionService:
    def __init__(
        self,
        *,
        registry: Registrations,
        log: MessageLog,
        writer: MessageWriter,
        idempotent: IdempotentPublisher,
        limiter: ProducerRateLimiter,
        metrics: Metrics,
        recorder: EventRecorder,
    ) -> None:
        self._registry = registry
        self._log = log
        self._writer = writer
        self._idempotent = idempotent
        self._limiter = limiter
        self._metrics = metrics
        self._recorder = recorder

    async def publish(
        self, topic: str, producer: str | None, messages: Sequence[Item | MqgateError]
    ) -> list[PublishOutcome]:
        """Publish at least one message and return one outcome per message.

        Raise TopicNotFound, ProducerNotFound or Forbidden before anything is stored. Any other error that is raised
        concerns all messages, but messages without a due time may be stored already.
        """
        sender = None if producer is None else await self._producer(producer, topic)
        target = self._registry.snapshot.topics.get(topic) or await self._registry.topic(topic)
        first = messages[0]
        try:
            if (
                len(messages) > 1
                or isinstance(first, MqgateError)
                or first[1] is not None
                or first[2] is not None
                or (sender is not None and sender.rate_limit is not None)
            ):
                outcomes = await self._write_valid(target, sender, messages)
            else:
                # Most publishes are one message that needs nothing but an append.
                drafts, name = (first[0],), producer or ""
                stored = await self._log.append(topic, drafts, name)
                self._recorder.published(topic, name, drafts, stored)
                if not isinstance(stored[0], MqgateError):
                    self._metrics.published.labels(topic).value += 1
                    return [tuple.__new__(Published, (first[0][0], stored[0], None, False))]
                outcomes = [stored[0]]
        except MqgateError as error:
            count = sum(not isinstance(message, MqgateError) for message in messages)
            self._metrics.refused.labels(topic, error.code).inc(count)
            self._recorder.refused(topic, error.code, count, producer=sender)
            raise
        refused: dict[str, int] = {}
        for outcome in outcomes:
            if isinstance(outcome, MqgateError):
                refused[outcome.code] = refused.get(outcome.code, 0) + 1
        for code, count in refused.items():
            self._metrics.refused.labels(topic, code).inc(count)
            self._recorder.refused(topic, code, count, producer=sender)
        return outcomes

    def replay(self, topic: Topic, messages: Sequence[Item | MqgateError]) -> Coroutine[Any, Any, list[PublishOutcome]]:
        """Store messages again, without a producer. `topic` may be the private log of a group."""
        return self._write_valid(topic, None, messages)

    async def _producer(self, name: str, topic: str) -> Producer:
        producer = await self._registry.producer(name)
        if producer.topic != topic:
            raise Forbidden(f"producer {name} publishes to topic {producer.topic} only")
        return producer

    async def _write_valid(
        self, topic: Topic, producer: Producer | None, messages: Sequence[Item | MqgateError]
    ) -> list[PublishOutcome]:
        """Write the messages that are valid; the outcome of an invalid message is its error."""
        items = [message for message in messages if not isinstance(message, MqgateError)]
        written = await self._write(topic, producer, items) if items else []
        if len(items) == len(messages):
            return written
        outcomes = iter(written)
        return [message if isinstance(message, MqgateError) else next(outcomes) for message in messages]

    async def _write(self, topic: Topic, producer: Producer | None, items: Sequence[Item]) -> list[PublishOutcome]:
        """Write the messages that the rate limit allows; the last ones are refused first."""
        allowed, refusal = await self._allow(producer, len(items))
        name = "" if producer is None else producer.name
        outcomes: list[PublishOutcome] = []
        if any(item.idempotency_key is not None for item in items[:allowed]):
            outcomes += await self._idempotent.write(topic, items[:allowed], name)
        elif allowed:
            outcomes += await self._writer.write(topic, items[:allowed], name)
        if refusal is not None:
            outcomes += [refusal] * (len(items) - allowed)
        return outcomes

    async def _allow(self, producer: Producer | None, count: int) -> tuple[int, RateLimited | None]:
        """Return how many messages the producer may publish now, and the error of the rest."""
        if producer is None or producer.rate_limit is None:
            return count, None
        limit = producer.rate_limit
        allowed, wait = await self._limiter.take(producer.name, limit, count)
        if allowed == count:
            return count, None
        return allowed, RateLimited(
            f"producer {producer.name} may publish {limit.rate:g} messages a second", retry_after=wait
        )
