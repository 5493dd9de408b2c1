"""The calls of the gateway, made directly to the brokers with the same client: the baseline of the gateway.

    python bench/direct.py NAME_SERVER SCENARIO TASKS SECONDS ['{"topic": ...}']

Prints one JSON object as load.py does.
"""

import asyncio
import itertools
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

import uvloop

from mqgate.rocketmq import RocketMQClient, RocketMQError

BODY = b"x" * 300
GROUP = "direct-reader"


class Load:
    def __init__(self, client: RocketMQClient, topic: str, places: list[tuple[str, int]]) -> None:
        self.client = client
        self.topic = topic
        self.places = places
        self.turn = itertools.count()

    async def single(self, _: int) -> int:
        broker, queue = self.places[next(self.turn) % len(self.places)]
        await self.client.messages.send(broker, self.topic, queue, BODY, {"UNIQ_KEY": uuid.uuid4().hex})
        return 1

    async def batch(self, _: int) -> int:
        broker, queue = self.places[next(self.turn) % len(self.places)]
        messages = [(BODY, {"UNIQ_KEY": uuid.uuid4().hex}) for _ in range(100)]
        await self.client.messages.send_batch(broker, self.topic, queue, messages)
        return 100

    def receive(self) -> Callable[[int], Awaitable[int]]:
        """Pull 32 messages, then commit, like a consumer of one queue."""
        offsets: dict[int, int] = {}

        async def receive(task: int) -> int:
            broker, queue = self.places[task % len(self.places)]
            at = offsets.get(task, 0)
            pulled = await self.client.messages.pull(broker, self.topic, queue, at, 32, group=GROUP)
            offsets[task] = pulled.next_offset if pulled.records else 0
            await self.client.offsets.commit(broker, GROUP, self.topic, queue, offsets[task])
            return len(pulled.records)

        return receive


async def main(server: str, name: str, tasks: int, seconds: float, options: dict[str, str]) -> None:
    client = RocketMQClient([server])
    await client.routes.brokers()
    topic = options.get("topic", "bench")
    route = await client.routes.find(topic)
    assert route is not None
    places = [(each.broker, queue) for each in route.queues for queue in range(each.write)]
    for broker in route.masters:
        await client.admin.put_group(broker, GROUP)
    load = Load(client, topic, places)
    step = {"single": load.single, "batch": load.batch, "receive": load.receive()}[name]
    latencies: list[float] = []
    counts = [0] * tasks
    errors = 0
    end = time.perf_counter() + seconds

    async def work(task: int) -> None:
        nonlocal errors
        while (began := time.perf_counter()) < end:
            try:
                done = await step(task)
            except RocketMQError:
                errors += 1
                continue
            counts[task] += done
            latencies.append(time.perf_counter() - began)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(task) for task in range(tasks)))
    passed, used = time.perf_counter() - began, time.process_time() - cpu
    await client.close()
    ordered = sorted(latencies)
    found = {"requests": len(ordered), "messages": sum(counts), "errors": errors, "seconds": passed, "cpu": used}
    found |= {"p50": ordered[len(ordered) // 2] * 1000, "p99": ordered[int(len(ordered) * 0.99)] * 1000}
    print(json.dumps(found))


if __name__ == "__main__":
    options = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), options))
