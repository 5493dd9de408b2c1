"""The use cases of a consumer: receive, ack, nack and extend.

A receive verifies the carried receipts, applies them with the lease step, waits, and signs the receipts of what it
delivers. If the client has disconnected by then, the leases are released, the next parked receive is woken, and the
notices are kept for the next response of the scope.
"""

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple

from mqgate.consumption.acknowledge import Acknowledger, carried, merge
from mqgate.consumption.connection import ClientDisconnected, Connection
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.consumption.pending_notices import PendingNotices
from mqgate.consumption.receive import ReceiveRequest, ReceiveResult
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import Lease, Settlement, SettlementResult, Verb, attempt_fingerprint
from mqgate.core.receipt import ReceiptKeys
from mqgate.core.receipt_times import of_messages, stamps
from mqgate.events.recorder import EventRecorder
from mqgate.telemetry.metrics import Metrics

__all__ = ["ConsumptionService", "SettledReceipts"]


class SettledReceipts(NamedTuple):
    """The result of each receipt in the order given, and the lease that it proved (None: it is invalid)."""

    results: Sequence[SettlementResult]
    leases: Sequence[Lease | None]


class ConsumptionService:
    def __init__(
        self,
        *,
        long_poll: LongPoll,
        notices: PendingNotices,
        acknowledger: Acknowledger,
        keys: ReceiptKeys,
        mirror: OffsetMirrorService,
        metrics: Metrics,
        recorder: EventRecorder,
    ) -> None:
        self._long_poll = long_poll
        self._notices = notices
        self._acknowledger = acknowledger
        self._keys = keys
        self._mirror = mirror
        self._metrics = metrics
        self._recorder = recorder

    async def receive(
        self,
        group: Group,
        client: str,
        connection: Connection,
        *,
        max_messages: int,
        max_bytes: int,
        wait: timedelta,
        visibility: timedelta | None = None,
        receipts: Sequence[str] = (),
        attempt: str | None = None,
        address: str = "",
        key_id: str = "",
    ) -> ReceiveResult:
        """Acknowledge receipts, then lease messages; wait up to `wait` while none is ready.

        `visibility`: None for that of the group. `key_id`: the API key of the request, for the limit of parked
        receives. Raise ClientDisconnected if the client has disconnected before the messages could be returned.
        """
        leases: Sequence[Lease | None] = ()
        acked: Sequence[Settlement] = ()
        if receipts and (whole := self._acknowledger.verify_range(group, receipts)) is not None:
            acked = whole
        elif receipts:
            leases = await self._acknowledger.verify(group, receipts, client)
            acked = carried(receipts, leases)
        request = ReceiveRequest(
            group,
            client,
            (group.name, client if group.mode is Mode.BROADCAST else ""),
            max_messages,
            group.visibility if visibility is None else visibility,
            max_bytes,
            attempt,
            acked,
            address,
            "" if attempt is None else attempt_fingerprint(max_messages, visibility),
            key_id,
        )
        received = await self._long_poll.receive(request, wait, connection)
        if self._notices.by_scope:
            received.add_notices(self._notices.take(request.scope))
        has_notices = received.is_registered or received.expired or received.rewound
        if (received.batches or has_notices) and connection.is_disconnected():
            await self._long_poll.release(request, received)
            raise ClientDisconnected
        if receipts:
            if leases:
                received.settled = merge(leases, received.settled)
            received.leases = leases or (acked[0].lease,)
            self._count(group, Verb.ACK, received.settled)
        self._deliver(group, client, received)
        return received

    def ack(
        self, group: Group, receipts: Sequence[str], *, client: str | None = None, through: int | None = None
    ) -> Coroutine[Any, Any, SettledReceipts]:
        """Acknowledge receipts, or with `through` a batch up to an offset.

        With `client`, the receipts of other broadcast clients are invalid.
        """
        return self._settle(group, Verb.ACK, receipts, client, through=through)

    def nack(
        self,
        group: Group,
        receipts: Sequence[str],
        *,
        client: str | None = None,
        delay: timedelta | None = None,
        reason: str | None = None,
    ) -> Coroutine[Any, Any, SettledReceipts]:
        """Return messages for redelivery after `delay`; None for the backoff of the group."""
        return self._settle(group, Verb.NACK, receipts, client, delay=delay, reason=reason)

    def extend(
        self, group: Group, receipts: Sequence[str], visibility: timedelta
    ) -> Coroutine[Any, Any, SettledReceipts]:
        """Extend leases to `visibility` from now on."""
        return self._settle(group, Verb.EXTEND, receipts, None, visibility=visibility)

    async def _settle(
        self,
        group: Group,
        verb: Verb,
        receipts: Sequence[str],
        client: str | None,
        *,
        through: int | None = None,
        delay: timedelta | None = None,
        reason: str | None = None,
        visibility: timedelta | None = None,
    ) -> SettledReceipts:
        leases = await self._acknowledger.verify(group, receipts, client)
        results = await self._acknowledger.settle(
            group, verb, leases, receipts, through=through, delay=delay, reason=reason, visibility=visibility
        )
        for lease, result in zip(leases, results, strict=True):
            if lease is not None and result.outcome.is_done:
                self._long_poll.settled((lease.group, lease.client), verb)
                self._mirror.mark_dirty(lease.group)
        self._count(group, verb, results)
        return SettledReceipts(results, leases)

    def _deliver(self, group: Group, client: str, received: ReceiveResult) -> None:
        """Record the delivery and sign the receipts: one per message in message mode, else one per batch."""
        self._recorder.delivered(group, client, received.batches)
        is_per_message = group.mode is Mode.MESSAGE
        receipts: list[Sequence[str]] = []
        count = redelivered = 0
        for grant, messages in received.batches:
            count += len(messages)
            redelivered += len(messages) if grant.delivery > 1 else 0
            if is_per_message:
                parts = of_messages(messages.offsets, messages.stored_ms)
                receipts.append(self._keys.sign_each(grant.lease, stamps(grant.granted_at), parts))
            else:
                received.receipt = self._keys.sign(grant.lease, stamps(grant.granted_at, messages.stored_ms))
        received.receipts = receipts
        self._metrics.delivered.labels(group.name).inc(count)
        self._metrics.redelivered.labels(group.name).inc(redelivered)

    def _count(self, group: Group, verb: Verb, results: Sequence[SettlementResult]) -> None:
        # Most results of a request are equal.
        for result, equal in groupby(results):
            self._metrics.settled.labels(group.name, verb, result.outcome).inc(len(list(equal)))
