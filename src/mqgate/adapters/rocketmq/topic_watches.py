"""Who hears of arrivals: one parked pull at the tail of every queue, per topic, while anybody waits there.

- All who wait on a topic share its pulls; they are kept for some seconds after the last one left, since most come back.
- A busy queue answers at once, again and again: its pulls are spaced out, the more the busier.
- With more queues than allowed, the topic's ends are asked for twice a second instead.
- A broker that is gone closes its own queues only; the others' pulls stay parked.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial

from mqgate.adapters.rocketmq.puller import pull
from mqgate.adapters.rocketmq.topics import Queue, Topic, Topics
from mqgate.core.errors import MqgateError
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.messages import Status

__all__ = ["TopicWatches"]

Arrived = Callable[[str, int], None]
_PARK = 15.0
_LINGER = 5.0
_LOOK_AROUND = 5.0
_LOOK_FOR_LOST = 0.5
_BUSY_WITHIN = 0.05
_MAX_SPACE = 0.05


class _Watch:
    """What goes on for one topic."""

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
    """`asked` is called for every request to a broker, for the metrics."""

    def __init__(
        self, client: RocketMQClient, topics: Topics, *, group: str, max_queues: int, on_request: Callable[[], None]
    ) -> None:
        self._client = client
        self._topics = topics
        self._group = group
        self._max_queues = max_queues
        self.on_request = on_request
        self._watches: dict[str, _Watch] = {}
        self._parked = 0

    def watch(self, name: str, callback: Arrived) -> Callable[[], None]:
        """Hear of arrivals on a topic from now on; returns how to stop."""
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
        """Follow a topic: begin with what is new, look for what was lost, until cancelled."""
        try:
            while True:
                pause = _LOOK_FOR_LOST
                watch.uncovered.clear()
                try:
                    topic = await self._topics.get(watch.name)
                    if topic is not watch.topic:
                        self._turn_to(watch, topic)
                    await self._topics.ensure_fresh(topic)
                    if self._cover(watch, topic) and not topic.closed:
                        pause = _LOOK_AROUND
                except MqgateError:
                    # The topic, or RocketMQ itself, may come back.
                    pass
                await asyncio.sleep(_LOOK_FOR_LOST)
                # Not wait_for: until Python 3.12 it may forget that we were cancelled.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause - _LOOK_FOR_LOST):
                        await watch.uncovered.wait()
        finally:
            self._turn_to(watch, None)

    def _turn_to(self, watch: _Watch, topic: Topic | None) -> None:
        """The topic was met just now, or made anew; or is watched no more."""
        for task in watch.pulls.values():
            task.cancel()
        watch.pulls.clear()
        if watch.topic is not None:
            watch.topic.watchers.remove(watch.arrived)
        watch.topic = topic
        if topic is not None:
            topic.watchers.append(watch.arrived)
            # Whatever came before we listened.
            watch.arrived("", 1)

    def _cover(self, watch: _Watch, topic: Topic) -> bool:
        """Park a pull on every queue that has none; False if there are too many."""
        for queue in topic.queues.values():
            if queue.name not in watch.pulls and not queue.is_closed:
                if self._parked >= self._max_queues:
                    return False
                self._parked += 1
                task = watch.pulls[queue.name] = asyncio.create_task(self._follow(topic, queue))
                task.add_done_callback(partial(self._left, watch, queue.name))
        return True

    def _left(self, watch: _Watch, queue: str, task: asyncio.Task[None]) -> None:
        self._parked -= 1
        if watch.pulls.get(queue) is task:
            del watch.pulls[queue]
            watch.uncovered.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _follow(self, topic: Topic, queue: Queue) -> None:
        """Pull at the tail until the queue closes."""
        space = 0.0
        while queue.bounds is not None and not queue.is_closed:
            offset = queue.bounds.max
            self.on_request()
            parked_at = time.monotonic()
            try:
                pulled = await pull(self._client, topic, queue, offset, 1, group=self._group, park=_PARK)
            except RocketMQError:
                self._topics.close_queues(topic, queue.broker)
                return
            if pulled.status is Status.FOUND:
                end = max(pulled.max_offset, offset + len(pulled.records))
                self._topics.report_bounds(topic, queue, pulled.min_offset, end, parked_at)
            elif pulled.status is Status.MOVED:
                self._topics.report_bounds(topic, queue, pulled.min_offset, pulled.max_offset, parked_at)
            # A quick answer once in a while is an arrival; many in a row are a load.
            is_busy = time.monotonic() - parked_at < _BUSY_WITHIN
            space = min(max(2 * space, 0.001), _MAX_SPACE) if is_busy else 0.0
            if space:
                await asyncio.sleep(space)

    async def close(self) -> None:
        watches = list(self._watches.values())
        tasks = [task for watch in watches for task in (watch.task, *watch.pulls.values()) if task is not None]
        for watch in watches:
            if watch.release is not None:
                watch.release.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
