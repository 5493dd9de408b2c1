"""Positions of a group: lag and seek."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.lease_state import LeaseStateInitializer
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import ClientNotFound, InvalidValue, QueueNotFound, QueueUnavailable
from mqgate.core.events import Kind
from mqgate.core.lease import OffsetRange, Position, QueueBounds, SeekResult
from mqgate.events.recorder import EventRecorder
from mqgate.ports.lease_store import LeaseStore

Target = Literal["earliest", "latest"] | datetime | Mapping[str, int]


class Lag(NamedTuple):
    positions: Sequence[Position]
    oldest: datetime | None


class PositionService:
    def __init__(
        self,
        log: GroupLog,
        leases: LeaseStore,
        dead_letters: DeadLetterWriter,
        mirror: OffsetMirrorService,
        opener: LeaseStateInitializer,
        recorder: EventRecorder,
    ) -> None:
        self._log = log
        self._mirror = mirror
        self._opener = opener
        self._leases = leases
        self._dead_letters = dead_letters
        self._recorder = recorder

    async def lag(self, group: Group, client: str, *, is_now: bool = False) -> Lag:
        """Return the lag of each queue, after the dead letters of exhausted messages were written.

        `is_now`: include what other gateways have just published, and create lost lease state. A periodic sample does
        neither: the group may have been deleted in the meantime.
        """
        positions = await self._read_positions(group, client, is_now=is_now)
        ordered = sorted(positions, key=lambda position: _natural(position.queue))
        return Lag(ordered, await self._oldest(group, positions))

    async def report_bounds(self, group: Group) -> None:
        """Report the bounds of the queues of a group to the lease store, for all gateways."""
        # Without lease state there is nothing to report.
        with contextlib.suppress(ClientNotFound):
            await self._read_positions(group, "")

    async def _read_positions(self, group: Group, client: str, *, is_now: bool = False) -> Sequence[Position]:
        """Return the position of each queue, after unknown queues were added and dead letters written."""
        unopened = frozenset[str]()
        while True:
            log = self._log
            bounds = await (log.current_bounds(group, is_complete=False) if is_now else log.bounds(group))
            found = await self._leases.positions(group, client, bounds.queues, bounds.last_append_ms)
            if found is None:
                await self._open(group, client, may_create=is_now)
                continue
            positions, exhausted = found
            unknown_queues = bounds.queues.keys() - {position.queue for position in positions} - unopened
            if unknown_queues:
                unopened |= await self._opener.add_queues(group, client, sorted(unknown_queues))
                continue
            # Exhausted messages of unreadable queues stay and count as waiting.
            if not any(await self._dead_letters.write_all(group, exhausted)):
                return positions

    async def standings(self, group: Group) -> list[tuple[str, Sequence[Position], datetime | None]]:
        """Return the lag of a group (client ""), or of each registered client of a broadcast group."""
        found = []
        for client in await self._clients(group):
            with contextlib.suppress(ClientNotFound):
                found.append((client, *await self.lag(group, client)))
        return found

    async def _clients(self, group: Group) -> Sequence[str]:
        if group.mode is not Mode.BROADCAST:
            return ("",)
        return [client.name for client in await self._leases.clients(group.name)]

    async def write_dead_letters(self, group: Group) -> None:
        """Write the dead letters of exhausted messages, so that a list of them is complete."""
        for client in await self._clients(group):
            found = await self._leases.positions(group, client, {})
            await self._dead_letters.write_all(group, found[1] if found else ())

    async def _oldest(self, group: Group, positions: Sequence[Position]) -> datetime | None:
        """Return the store time of the oldest unsettled message that can be read now."""
        stored = []
        for position in positions:
            if position.lag > 0:
                first = max(position.committed, position.min)
                with contextlib.suppress(QueueUnavailable):
                    stored += [
                        message.stored_at for message in await self._log.read(group, position.queue, first, 1, 1)
                    ]
        return min(stored, default=None)

    async def seek(self, group: Group, client: str, target: Target, *, is_dry_run: bool) -> Sequence[SeekResult]:
        """Seek a group or one broadcast client to another position; return the change of each queue."""
        # The bounds must include messages that another gateway has just confirmed.
        current = await self._log.current_bounds(group)
        bounds, last_append_ms = current.queues, current.last_append_ms
        targets = await self._resolve(group, target, bounds)
        while (
            moved := await self._leases.seek(
                group, client, targets, bounds=bounds, last_append_ms=last_append_ms, is_dry_run=is_dry_run
            )
        ) is None:
            await self._open(group, client, may_create=True)
        if not is_dry_run:
            skipped = [OffsetRange(result.queue, result.old, result.new) for result in moved if result.new > result.old]
            self._recorder.spans(Kind.SKIPPED, group, client, skipped)
            await self._mirror.sought(group)
        return sorted(moved, key=lambda result: _natural(result.queue))

    async def _open(self, group: Group, client: str, *, may_create: bool) -> None:
        """Create lost lease state of a group at its last position. A client gets its state when it receives."""
        if group.mode is Mode.BROADCAST:
            raise ClientNotFound(f"group {group.name} has no client {client}: it has not polled, or has expired")
        if not may_create:
            raise ClientNotFound(f"group {group.name} has no lease state yet: receive once")
        await self._opener.open(group, client)

    async def _resolve(self, group: Group, target: Target, bounds: Mapping[str, QueueBounds]) -> Mapping[str, int]:
        if target == "earliest":
            return {queue: its_bounds.min for queue, its_bounds in bounds.items()}
        if target == "latest":
            return {queue: its_bounds.max for queue, its_bounds in bounds.items()}
        if isinstance(target, datetime):
            found = await self._log.offsets_at(group, target)
            return {queue: max(at, bounds[queue].min) for queue, at in found.items()}
        assert isinstance(target, Mapping)  # noqa: S101 - for the type checker
        for queue, offset in target.items():
            if queue not in bounds:
                raise QueueNotFound(f"topic {group.topic} has no queue {queue}", queue=queue)
            low, end = bounds[queue]
            if not low <= offset <= end:
                raise InvalidValue(f"{queue} holds offsets {low} to {end}", field=f"to.{queue}", limit=[low, end])
        return target


def age(oldest: datetime | None, now: datetime) -> timedelta | None:
    return None if oldest is None else max(now - oldest, timedelta(0))


def _natural(queue: str) -> tuple[str, int]:
    broker, _, number = queue.rpartition(":")
    return broker, int(number)
