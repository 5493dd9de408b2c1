"""Waits until the consume queues of a broker contain everything that the broker has stored.

A broker confirms a message when it is in its commit log, and adds it to the consume queue shortly after. All offsets
that a broker reports, even the max offset, cover the consume queues only. The broker also reports how many bytes of its
commit log the consume queues lack. That request costs the broker a tenth of a second: it is used for seeks and for
newly discovered topics, and concurrent callers share it.
"""

import asyncio

import structlog

from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import RocketMQError

__all__ = ["ConsumeQueueBarrier"]

_log = structlog.get_logger()
_TIMEOUT = 3.0


class ConsumeQueueBarrier:
    def __init__(self, client: RocketMQClient) -> None:
        self._client = client
        self._checks: dict[str, asyncio.Task[None]] = {}

    async def wait(self, broker: str) -> None:
        """Wait until the queues contain all that the broker had confirmed before this call, at most 3 seconds."""
        before = self._checks.get(broker)
        if before is not None:
            # A running check may miss messages that were stored after it started. Its waiters share the next check.
            await asyncio.wait((before,))
        if self._checks.get(broker) is before:
            self._checks[broker] = asyncio.create_task(self._check(broker))
        await asyncio.wait((self._checks[broker],))

    async def _check(self, broker: str) -> None:
        """Poll until the queues contain what was stored at the first poll. Under load they always lack a little."""
        stored = None
        try:
            async with asyncio.timeout(_TIMEOUT):
                while True:
                    runtime = await self._client.admin.runtime(broker)
                    end, behind = int(runtime["commitLogMaxOffset"]), int(runtime["dispatchBehindBytes"])
                    stored = end if stored is None else stored
                    if not behind or end - behind >= stored:
                        return
        except (RocketMQError, KeyError, ValueError, TimeoutError) as error:
            # The broker is down, or the user lacks the permission: continue with the queues as they are.
            _log.info("consume queue progress not reported by broker", broker=broker, error=str(error))

    async def close(self) -> None:
        """Cancel the running checks."""
        for task in self._checks.values():
            task.cancel()
        await asyncio.gather(*self._checks.values(), return_exceptions=True)
