"""Who works on what until when: committed offsets, locks, epochs, tokens.

Every method is one atomic step, judged by the store's own clock. The store never reads messages: what the log
knows (the ends of its queues) comes in as arguments. Nothing here assumes a single gateway.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from mqgate.core.entries import Group
from mqgate.core.lease import (
    AcquireRequest,
    AcquireResult,
    ClientInfo,
    ExhaustedMessage,
    Position,
    PullReport,
    QueueBounds,
    SeekResult,
    Settlement,
    SettlementResult,
)


class LeaseStore(Protocol):
    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        """Make the state of a group (client "") or of a broadcast client; False if it was there already.

        Queues that it does not have yet are added where `starts` says, the others stay as they are. More broadcast
        clients than the store's limit raise TooManyClients.
        """

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        """Apply the carried settlements, then choose and lock one queue.

        Free queues with backlog; unserved for AGEING first, oldest first; then the largest backlog; ties go to the
        least recently consumed. An attempt repeated while its lease is untouched gets the same lease, uncounted; with
        other parameters AttemptMismatch is raised.

        TopicBounds of a queue that the state does not know make it a stranger, unless it is closed. An end lower
        than before may be old news of a slower gateway, and be believed some seconds later only.

        Nothing of a closed queue is granted or doomed. An attempt whose leases all lie in closed queues is a new
        receive: as soon as it is given something else it means that, and the leases it had end by themselves. If
        only some lie there (message mode), the others are given again.
        """

    async def report_pull(self, group: Group, placements: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        """Say what a pull found, or that nobody is left to take it; which offsets of each grant stay granted.

        What lies behind `after` goes back at once; if that is everything, the delivery does not count. Tokens
        taken for it are refunded. What a filter did not keep is settled; in an ordered group a message behind
        an unsettled one of its key waits for it. A lease that is no longer current changes nothing. One that was
        served to the same attempt again goes back when nobody is left to take any of these answers, in whatever
        order they end; else the last serve places it.
        """

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        """Apply acks, nacks and extends one by one; refused ones change nothing."""

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        """Move committed past a dead message, if its queue still stands there; only then is the answer True.

        `is_expired`: retention took it before anybody could keep it, and it counts as that.
        """

    async def seek(
        self,
        group: Group,
        client: str,
        targets: Mapping[str, int],
        *,
        bounds: Mapping[str, QueueBounds] = MappingProxyType({}),
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
        is_dry_run: bool,
    ) -> Sequence[SeekResult] | None:
        """Put committed offsets elsewhere and sweep away every lease given before; None: no such state.

        `heads` may name queues that the store has not met yet.
        """

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        """Return the position of each queue and the messages that must be dead-lettered first; None: no such state."""

    async def committed(self, group: str) -> Mapping[str, int] | None:
        """The committed offset of each queue of a group that is not broadcast; None: no such state. Changes nothing."""

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        """Who polled lately and what they hold."""

    async def forget(self, group: str) -> None:
        """Drop all state of a group."""
