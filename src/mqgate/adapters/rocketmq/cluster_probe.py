"""Checks which servers of RocketMQ respond, for /readyz.

A broker that fails is removed from its name server at once. Brokers that were seen before, and brokers of topics in
use, are therefore checked as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from mqgate.core.errors import StorageUnavailable
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, RocketMQError

__all__ = ["ClusterProbe"]

# /readyz has two seconds for all of its checks.
_DEADLINE = 0.8
_OK = "ok"


class ClusterProbe:
    """The probe of one cluster. `masters` returns its live brokers."""

    def __init__(self, client: RocketMQClient, masters: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._client = client
        self._masters = masters
        self._seen: set[str] = set()

    async def states(self, brokers: Iterable[str]) -> Mapping[str, str]:
        """Return the state of each server. Raise StorageUnavailable if no broker responds."""
        states = {"name server": await self._check_name_servers()}
        names = sorted(self._seen.union(brokers))
        found = await asyncio.gather(*(self._check_broker(broker) for broker in names))
        states |= {f"broker {broker}": state for broker, state in zip(names, found, strict=True)}
        if _OK not in found:
            raise StorageUnavailable("no broker of RocketMQ responds", retry_after=1)
        return states

    async def _check_name_servers(self) -> str:
        try:
            async with asyncio.timeout(_DEADLINE):
                self._seen.update(await self._masters())
        except Refused:
            return "refused"
        except (RocketMQError, TimeoutError):
            return "unreachable"
        except StorageUnavailable:
            # The name server lists no broker of the cluster. A new one lists none at first.
            if not self._seen:
                raise
        return _OK

    async def _check_broker(self, broker: str) -> str:
        try:
            async with asyncio.timeout(_DEADLINE):
                await self._client.offsets.max(broker, "TBW102", 0)
        except Refused:
            return "refused"
        except (RocketMQError, TimeoutError):
            return "unreachable"
        return _OK
