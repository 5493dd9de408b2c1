"""Which of RocketMQ's servers answer, for /readyz.

A broker that dies vanishes from its name server at once: brokers that were seen, or that a topic in use should lie on,
are missed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from mqgate.core.errors import StorageUnavailable
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, RocketMQError

__all__ = ["ClusterProbe"]

# Whoever asks waits two seconds for everything.
_DEADLINE = 0.8
_OK = "ok"


class ClusterProbe:
    """`masters` tells the brokers of our cluster that live."""

    def __init__(self, client: RocketMQClient, masters: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._client = client
        self._masters = masters
        self._seen: set[str] = set()

    async def states(self, brokers: Iterable[str]) -> Mapping[str, str]:
        """Each server, and whether it answers; StorageUnavailable if nothing could be stored."""
        states = {"name server": await self._look_around()}
        names = sorted(self._seen.union(brokers))
        told = await asyncio.gather(*(self._ask(broker) for broker in names))
        states |= {f"broker {broker}": state for broker, state in zip(names, told, strict=True)}
        if _OK not in told:
            raise StorageUnavailable("no broker answers as it should", retry_after=1)
        return states

    async def _look_around(self) -> str:
        """How the name servers are."""
        try:
            async with asyncio.timeout(_DEADLINE):
                self._seen.update(await self._masters())
        except Refused:
            return "refused"
        except (RocketMQError, TimeoutError):
            return "unreachable"
        except StorageUnavailable:
            # It knows no broker of ours: a new one does not at first.
            if not self._seen:
                raise
        return _OK

    async def _ask(self, broker: str) -> str:
        try:
            async with asyncio.timeout(_DEADLINE):
                await self._client.offsets.max(broker, "TBW102", 0)
        except Refused:
            return "refused"
        except (RocketMQError, TimeoutError):
            return "unreachable"
        return _OK
