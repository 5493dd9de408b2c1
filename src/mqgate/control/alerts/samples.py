"""Samples of all groups: lag, age of the oldest message, blocked queues, and time without a consumer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import structlog

from mqgate.core.entries import Group
from mqgate.core.errors import MqgateError
from mqgate.core.lease import Position
from mqgate.ports.lease_store import LeaseStore

__all__ = ["GroupSample", "GroupSampler"]

# The client ("" unless broadcast), its position in each queue, and the store time of its oldest unsettled message.
ClientPositions = tuple[str, Sequence[Position], datetime | None]
_CONCURRENCY = 8
_log = structlog.get_logger()


class GroupSample(NamedTuple):
    """The state of a group, added over the clients of a broadcast group. Ages are in seconds."""

    lag: int
    oldest_age: float
    idle: float
    blocked: int


class GroupSampler:
    """Reads the state of groups, at most 8 at a time."""

    def __init__(
        self,
        read_positions: Callable[[Group], Awaitable[Sequence[ClientPositions]]],
        leases: LeaseStore,
        clock: Callable[[], datetime],
    ) -> None:
        self._read_positions = read_positions
        self._leases = leases
        self._clock = clock

    async def sample(self, groups: Iterable[Group]) -> Mapping[str, GroupSample | None]:
        """Return a sample of each group, or None if it cannot be read now."""
        limit = asyncio.Semaphore(_CONCURRENCY)
        samples: dict[str, GroupSample | None] = {}

        async def sample_one(group: Group) -> None:
            async with limit:
                samples[group.name] = await self._sample(group)

        await asyncio.gather(*map(sample_one, groups))
        return samples

    async def _sample(self, group: Group) -> GroupSample | None:
        try:
            found = await self._read_positions(group)
            lag = sum(max(position.lag, 0) for _, positions, _ in found for position in positions)
            clients = await self._leases.clients(group.name) if lag else ()
        except MqgateError as error:
            _log.debug("group not sampled", group=group.name, error=error.detail)
            return None
        now = self._clock()
        oldest = min((at for _, _, at in found if at is not None), default=now)
        age = max((now - oldest).total_seconds(), 0.0)
        last_seen = max((client.last_seen for client in clients), default=oldest)
        return GroupSample(
            lag=lag,
            oldest_age=age,
            # Nobody needs to poll while there is nothing to receive, and a paused group delivers nothing.
            idle=0.0 if not lag or group.is_paused else min(age, max((now - last_seen).total_seconds(), 0.0)),
            blocked=sum(position.is_blocked for _, positions, _ in found for position in positions),
        )
