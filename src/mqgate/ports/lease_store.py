"""Storage of leases: committed offsets, epochs, leases and rate-limit tokens of groups.

Every method is one atomic step by the clock of the store. The store never reads messages: the caller passes the bounds
of the queues. Several gateways may use one store at the same time.
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
    """The lease state of all groups. A group has one state (client ""), a broadcast group one per client."""

    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        """Create the lease state of a group, or of a broadcast client. Return False if it existed.

        Queues that the state does not contain yet are added at the offsets in `starts`; the others do not change.
        Raises TooManyClients if a broadcast group would exceed the client limit of the store.
        """

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        """Apply the carried settlements, then lease one queue, or in message mode up to `max_count` messages.

        Queue mode chooses among the queues with a backlog that are not leased: first those not served for AGEING,
        longest wait first; then the largest backlog; then the least recently consumed. If an attempt is repeated while
        its lease is unchanged, the same lease is returned and the delivery is not counted again. Raises
        AttemptMismatch if the parameters of the repeated attempt differ.

        Queues in `bounds` that the state does not contain are returned in `unknown_queues`, unless they are closed. A
        `max` that is lower than before may be outdated information of a slower gateway: the store may ignore it for
        some seconds. Optional bounds may be ignored if they cannot change what is granted.

        A store that is shared by several gateways may return the result of the last step that granted nothing for
        50 ms, unless the request carries anything or this gateway has changed the lease state since.

        The store neither grants nor exhausts messages of closed queues. If all leases of an attempt are in closed
        queues, its repeat is a new receive. Once it is granted something else, the attempt refers to that, and the
        earlier leases are left to expire. If only some of them are in closed queues (message mode), the others are
        returned again.
        """

    async def report_pull(self, group: Group, reports: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        """Report what a pull found, or that the response could not be sent. Return the offsets that stay leased.

        The result has one set of offsets per grant. Messages from `after` on are released at once and their tokens are
        refunded; if nothing stays leased, the delivery does not count. Messages that the filter dropped are settled. In
        an ordered group a message waits for unsettled earlier messages of its key. Reports of leases that are no longer
        current change nothing.

        A lease that was served several times to one attempt is released when all of its serves were returned, in any
        order. Otherwise the report of the last serve applies.
        """

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        """Apply acks, nacks and extends in order. Return one result each. A refused settlement changes nothing."""

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        """Move the committed offset past a dead letter. Return False if it no longer points to that message.

        `is_expired`: retention deleted the message before it could be stored, and it counts as expired.
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
        """Set committed offsets and revoke every earlier lease. Return None if the state does not exist.

        `bounds` may contain queues that are new to the store. A dry run returns the result and changes nothing.
        """

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        """Return the position of each queue, and the exhausted messages that block queues.

        Returns None if the state does not exist.
        """

    async def committed(self, group: str) -> Mapping[str, int] | None:
        """Return the committed offset of each queue of a group that is not broadcast. Changes nothing.

        Returns None if the state does not exist.
        """

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        """Return the clients that polled recently and the queues that they have leased."""

    async def forget(self, group: str) -> None:
        """Delete all lease state of a group."""

    async def tidy(self) -> None:
        """Delete settled receipts and clients that are no longer needed. The gateway calls it regularly."""
