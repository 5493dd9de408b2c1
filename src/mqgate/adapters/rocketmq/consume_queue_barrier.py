"""Whether a broker's queues show all that it has stored.

A broker confirms a message when it lies in its log, and puts it into its queue a moment later. No offset that it tells
says more than its queues show, not even the greatest one of a queue. But it tells how many bytes of its log they lack.
The question costs a broker a tenth of a second: it is for seeks and first contacts, and all who wait share it.
"""

import asyncio

import structlog

from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import RocketMQError

__all__ = ["ConsumeQueueBarrier"]

_log = structlog.get_logger()
_PATIENCE = 3.0


class ConsumeQueueBarrier:
    def __init__(self, client: RocketMQClient) -> None:
        self._client = client
        self._looks: dict[str, asyncio.Task[None]] = {}

    async def wait(self, broker: str) -> None:
        """Until its queues show all that it had confirmed before, or it does not say."""
        before = self._looks.get(broker)
        if before is not None:
            # What came after it began it may not have seen. All who came since share the next one.
            await asyncio.wait((before,))
        if self._looks.get(broker) is before:
            self._looks[broker] = asyncio.create_task(self._look(broker))
        await asyncio.wait((self._looks[broker],))

    async def _look(self, broker: str) -> None:
        """Look until the queues show what was stored at the first look; under load they always lack a little."""
        stored = None
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    told = await self._client.admin.runtime(broker)
                    end, lacking = int(told["commitLogMaxOffset"]), int(told["dispatchBehindBytes"])
                    stored = end if stored is None else stored
                    if not lacking or end - lacking >= stored:
                        return
        except (RocketMQError, KeyError, ValueError, TimeoutError) as error:
            # It is gone, or to ask takes a right that not every user has: what it shows by now must do.
            _log.info("broker did not tell whether its queues are complete", broker=broker, error=str(error))

    async def close(self) -> None:
        """Wait for nothing that is under way."""
        for task in self._looks.values():
            task.cancel()
        await asyncio.gather(*self._looks.values(), return_exceptions=True)
