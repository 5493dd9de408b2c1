"""Publishes in the background, in batches.

    publish      -> the message waits in memory, within two limits; at a limit the caller waits (back-pressure)
    sender       -> takes all waiting messages of one topic, up to `max_batch`, and sends them as one batch
    future       -> the result of the message, or its error after the retries of the client
Each message key belongs to one sender, and a sender sends one batch at a time, so messages with the same key are stored
in the order of their calls. A message that is stored only by a retry may come after later ones of its key.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from mqgate.client.blocking import run_blocking
from mqgate.client.client import Client
from mqgate.client.message import envelope
from mqgate.client.messages import item_error, publish_encoded
from mqgate.client.requests import Duration, Instant, encode, seconds
from mqgate.client.tracing import trace_properties
from mqgate.client.types import PublishResult

__all__ = ["Publisher", "PublisherClosed", "PublisherFull"]


class PublisherClosed(RuntimeError):
    """A message was published after `close`."""


class PublisherFull(RuntimeError):
    """The memory limit was not freed in time: the gateway accepts messages more slowly than they are published."""


@dataclass(slots=True)
class _Waiting:
    topic: str
    content: bytes
    future: "Future[PublishResult]"


@dataclass(slots=True)
class _Lane:
    """The messages of one sender."""

    waiting: deque[_Waiting]
    arrived: threading.Condition


class Publisher:
    """Background publisher; threads and event loops may share it.

    `max_messages` and `max_bytes` limit what waits in memory, `senders` is the number of concurrent requests. With
    `linger`, a sender waits for more messages before it sends a batch that is not full.
    """

    def __init__(
        self,
        client: Client,
        *,
        producer: str | None = None,
        max_batch: int = 500,
        max_batch_bytes: int = 512 * 1024,
        max_messages: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        senders: int = 4,
        linger: float | timedelta = 0.005,
    ) -> None:
        self._client = client
        self._producer = producer
        self._max_batch, self._max_batch_bytes = max_batch, max_batch_bytes
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._linger = seconds(linger)
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._lanes = [_Lane(deque(), threading.Condition(self._lock)) for _ in range(senders)]
        self._messages = self._bytes = 0
        self._name, self._numbers = uuid4().hex, count()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name="mqgate-publisher", daemon=True)
            for lane in self._lanes
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        idempotency_key: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> "Future[PublishResult]":
        """Accept a message, and return the future of its result.

        At a memory limit, wait up to `timeout` (without one, as long as it takes) and raise PublisherFull after it.
        """
        content = envelope(
            body,
            key=key,
            tag=tag,
            properties={**trace_properties(), **(properties or {})},
            delay=delay,
            deliver_at=deliver_at,
            idempotency_key=idempotency_key,
        )
        # The client may send the message again; a key of its own costs less than a random one.
        content.setdefault("idempotencyKey", f"{self._name}-{next(self._numbers)}")
        message = _Waiting(topic, encode(content), Future())
        deadline = None if timeout is None else time.monotonic() + seconds(timeout)
        with self._lock:
            while not self._has_room(message):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise PublisherFull(f"{self._messages} messages wait: publish more slowly, or add senders")
                self._freed.wait(left)
            self._add(message, key)
        return message.future

    async def publish_async(self, topic: str, body: Any, **metadata: Any) -> PublishResult:
        """Publish from an event loop, and return the result. `metadata` are the arguments of `publish`."""
        try:
            future = self.publish(topic, body, **metadata | {"timeout": 0})
        except PublisherFull:
            future = await asyncio.to_thread(self.publish, topic, body, **metadata)
        return await asyncio.wrap_future(future)

    def flush(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until every accepted message has a result. Return False if that takes longer than `timeout`."""
        with self._lock:
            return self._freed.wait_for(lambda: not self._messages, None if timeout is None else seconds(timeout))

    def close(self) -> None:
        """Send what waits, and end. The client stays open."""
        with self._lock:
            self._is_closed = True
            for condition in (self._freed, *(lane.arrived for lane in self._lanes)):
                condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _has_room(self, message: _Waiting) -> bool:
        if self._is_closed:
            raise PublisherClosed("the publisher is closed: create another one")
        # A message larger than the limit is accepted alone; the gateway has the last word on its size.
        is_small_enough = self._bytes + len(message.content) <= self._max_bytes or not self._messages
        return self._messages < self._max_messages and is_small_enough

    def _add(self, message: _Waiting, key: str | None) -> None:
        self._messages += 1
        self._bytes += len(message.content)
        if key is None:
            # One lane at a time is filled: many half-empty batches would cost a request each.
            is_busy = self._messages > self._max_batch
            lane = min(self._lanes, key=lambda lane: len(lane.waiting)) if is_busy else self._lanes[0]
        else:
            lane = self._lanes[hash(key) % len(self._lanes)]
        lane.waiting.append(message)
        # A sender waits for the first message of its lane, and perhaps for a full batch.
        if len(lane.waiting) in {1, self._max_batch}:
            lane.arrived.notify()

    def _run(self, lane: "_Lane") -> None:
        while batch := self._take(lane):
            for message, result in zip(batch, self._send(batch), strict=True):
                _resolve(message.future, result)
            with self._lock:
                self._messages -= len(batch)
                self._bytes -= sum(len(message.content) for message in batch)
                self._freed.notify_all()

    def _take(self, lane: "_Lane") -> list[_Waiting]:
        """Return the next batch of a lane, or nothing when the publisher is closed and the lane empty."""
        waiting = lane.waiting
        with self._lock:
            lane.arrived.wait_for(lambda: waiting or self._is_closed)
            if self._linger and not self._is_closed:
                lane.arrived.wait_for(lambda: len(waiting) >= self._max_batch or self._is_closed, self._linger)
            batch: list[_Waiting] = []
            size = 0
            while waiting and len(batch) < self._max_batch and waiting[0].topic == (batch or waiting)[0].topic:
                size += len(waiting[0].content)
                if batch and size > self._max_batch_bytes:
                    break
                batch.append(waiting.popleft())
            return batch

    def _send(self, batch: list[_Waiting]) -> "Sequence[PublishResult | Exception]":
        try:
            contents = [message.content for message in batch]
            caller = self._client.core.caller
            return run_blocking(publish_encoded(caller, batch[0].topic, contents, self._producer, is_repeatable=True))
        except Exception as error:  # noqa: BLE001 - the futures of the batch have to end, whatever happened
            return [error] * len(batch)


def _resolve(future: "Future[PublishResult]", result: PublishResult | Exception) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    elif "error" in result:
        future.set_exception(item_error(result))
    else:
        future.set_result(result)
