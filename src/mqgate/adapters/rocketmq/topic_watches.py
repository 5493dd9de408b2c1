"""Watches of topics: one parked pull at the end of every queue of a topic that has subscribers.

- All subscribers of a topic share its pulls. The pulls are kept for 5 seconds after the last unsubscribe, because most
  subscribers return.
- A pull on a busy queue returns at once. Consecutive pulls are therefore spaced out, by up to 50 ms.
- If there are more queues than allowed, the bounds of the topic are polled twice a second instead.
- If a broker fails, only its own queues are closed. The pulls on other brokers stay parked.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial

from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.core.errors import MqgateError
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.messages import Status
from mqgate.rocketmq.puller import pull

__all__ = ["TopicWatches"]

Arrived = Callable[[str, int], None]
_PARK = 15.0
_LINGER = 5.0
_REFRESH_INTERVAL = 5.0
_POLL_INTERVAL = 0.5
_BUSY_WITHIN = 0.05
_MAX_SPACING = 0.05


class _Watch:
    """The watch of one topic. `uncovered` is set when a queue has no parked pull."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic: Topic | None = None
        self.callbacks: list[Arrived] = []
        self.task: asyncio.Task[None] | None = None
        self.pulls: dict[str, asyncio.Task[None]] = {}
        self.release: asyncio.TimerHandle | None = None
        self.uncovered = asyncio.Event()

    def arrived(self, queue: str, count: int) -> None:
        if queue not in self.pulls:
            self.uncovered.set()
        for callback in list(self.callbacks):
            callback(queue, count)


class TopicWatches:
    """The watches of all topics. `on_request` is called for every pull, for the metrics."""

    def __init__(
        self, client: RocketMQClient, topics: Topics, *, group: str, max_queues: int, on_request: Callable[[], None]
    ) -> None:
        self._client = client
        self._topics = topics
        self._group = group
        self._max_queues = max_queues
        self._on_request = on_request
        self._watches: dict[str, _Watch] = {}
        self._parked = 0

    def watch(self, name: str, callback: Arrived) -> Callable[[], None]:
        """Call back on arrivals at a topic from now on. Return the function that unsubscribes."""
        watch = self._watches.get(name)
        if watch is None:
            watch = self._watches[name] = _Watch(name)
            watch.topic = self._topics.known(name)
            if watch.topic is not None:
                watch.topic.watchers.append(watch.arrived)
            watch.task = asyncio.create_task(self._run(watch))
        if watch.release is not None:
            watch.release.cancel()
            watch.release = None
        watch.callbacks.append(callback)
        return lambda: self._stop(watch, callback)

    def _stop(self, watch: _Watch, callback: Arrived) -> None:
        watch.callbacks.remove(callback)
        if not watch.callbacks:
            watch.release = asyncio.get_running_loop().call_later(_LINGER, self._release, watch)

    def _release(self, watch: _Watch) -> None:
        self._watches.pop(watch.name, None)
        if watch.task is not None:
            watch.task.cancel()

    async def _run(self, watch: _Watch) -> None:
        """Keep a pull parked on every open queue of the topic until cancelled."""
        try:
            while True:
                pause = _POLL_INTERVAL
                watch.uncovered.clear()
                try:
                    topic = await self._topics.get(watch.name)
                    if topic is not watch.topic:
                        self._attach(watch, topic)
                    await self._topics.ensure_fresh(topic)
                    if self._cover(watch, topic) and not topic.closed:
                        pause = _REFRESH_INTERVAL
                except MqgateError:
                    # The topic or RocketMQ is unavailable: try again later.
                    pass
                await asyncio.sleep(_POLL_INTERVAL)
                # Until Python 3.12, asyncio.wait_for may lose a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause - _POLL_INTERVAL):
                        await watch.uncovered.wait()
        finally:
            self._attach(watch, None)

    def _attach(self, watch: _Watch, topic: Topic | None) -> None:
        """Attach the watch to a newly loaded topic, or to none."""
        for task in watch.pulls.values():
            task.cancel()
        watch.pulls.clear()
        if watch.topic is not None:
            watch.topic.watchers.remove(watch.arrived)
        watch.topic = topic
        if topic is not None:
            topic.watchers.append(watch.arrived)
            # Messages may have arrived before the watch was attached.
            watch.arrived("", 1)

    def _cover(self, watch: _Watch, topic: Topic) -> bool:
        """Park a pull on every queue that has none. Return False if there are too many queues."""
        for queue in topic.queues.values():
            if queue.name not in watch.pulls and not queue.is_closed:
                if self._parked >= self._max_queues:
                    return False
                self._parked += 1
                task = watch.pulls[queue.name] = asyncio.create_task(self._watch_queue(topic, queue))
                task.add_done_callback(partial(self._pull_ended, watch, queue.name))
        return True

    def _pull_ended(self, watch: _Watch, queue: str, task: asyncio.Task[None]) -> None:
        self._parked -= 1
        if watch.pulls.get(queue) is task:
            del watch.pulls[queue]
            watch.uncovered.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _watch_queue(self, topic: Topic, queue: Queue) -> None:
        """Pull at the end of the queue until the queue is closed."""
        spacing = 0.0
        while queue.bounds is not None and not queue.is_closed:
            offset = queue.bounds.max
            self._on_request()
            parked_at = time.monotonic()
            try:
                pulled = await pull(
                    self._client, queue.broker, topic.wire, queue.id, offset, 1, group=self._group, park=_PARK
                )
            except RocketMQError:
                self._topics.close_queues(topic, queue.broker)
                return
            if pulled.status is Status.FOUND:
                end = max(pulled.max_offset, offset + len(pulled.records))
                self._topics.report_bounds(topic, queue, pulled.min_offset, end, parked_at)
            elif pulled.status is Status.MOVED:
                self._topics.report_bounds(topic, queue, pulled.min_offset, pulled.max_offset, parked_at)
            # One quick response is an arrival, many in a row are a load.
            is_busy = time.monotonic() - parked_at < _BUSY_WITHIN
            spacing = min(max(2 * spacing, 0.001), _MAX_SPACING) if is_busy else 0.0
            if spacing:
                await asyncio.sleep(spacing)

    async def close(self) -> None:
        watches = list(self._watches.values())
        tasks = [task for watch in watches for task in (watch.task, *watch.pulls.values()) if task is not None]
        for watch in watches:
            if watch.release is not None:
                watch.release.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
