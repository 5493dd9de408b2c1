"""The minimum cost of a fetch: the same requests, responses and round trips, without the work of the gateway.

    python bench/floor.py REDIS_URL NAME_SERVER BROKER TOPIC QUEUES PORT

Every POST runs an empty script on Redis, pulls 32 messages, and returns as many prebuilt ones. Nothing is leased,
decoded, acknowledged or checked. No gateway on this HTTP stack and these connections can cost less.
"""

import itertools
import json
import sys
from typing import Any

import uvicorn

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.scripts import Script
from mqgate.rocketmq import RocketMQClient

MANY = 32
# Minimum number of messages in every queue.
DEPTH = 500 * MANY
MESSAGE = {
    "id": "0" * 32,
    "topic": "filled",
    # Distinct offsets: the generator would count equal ones as duplicates.
    "offset": 1_000_000,
    "queue": "broker-a:0",
    "key": None,
    "tag": None,
    "properties": {},
    "storedAt": "2026-01-01T00:00:00.000Z",
    "body": "x" * 300,
    "delivery": 1,
    "leasedUntil": "2026-01-01T00:00:00.000Z",
}
ANSWER = json.dumps({"messages": [MESSAGE] * MANY, "lease": {"receipt": "r" * 150}}, separators=(",", ":")).encode()
EMPTY = Script("empty", b"return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db")


class App:
    def __init__(self, redis_url: str, name_server: str, broker: str, topic: str, queues: int) -> None:
        self._redis = RedisClient(redis_url, timeout=5.0)
        self._client = RocketMQClient([name_server])
        self._broker, self._topic = broker, topic
        self._places = itertools.cycle(range(queues))
        self._offsets = [0] * queues

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            while (await receive()).get("more_body"):
                pass
            await self._redis.evaluate(EMPTY, ("floor",), lambda *_: ())
            queue = next(self._places)
            offset = self._offsets[queue]
            self._offsets[queue] = (offset + MANY) % DEPTH
            wanted = self._broker, self._topic, queue, offset, MANY
            await self._client.messages.pull_undecoded(*wanted, group="floor")
        else:
            # Readiness checks.
            await self._client.routes.brokers()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})


def main(redis_url: str, name_server: str, broker: str, topic: str, queues: str, port: str) -> None:
    uvicorn.run(
        App(redis_url, name_server, broker, topic, int(queues)),
        port=int(port),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        access_log=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
