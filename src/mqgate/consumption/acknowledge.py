"""Ack, nack and extend: verify receipts, and settle the leases that they prove."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import repeat

from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.core.acked_range import AckedRange
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.core.lease import Lease, Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.receipt import ReceiptKeys
from mqgate.events.recorder import EventRecorder
from mqgate.ports.lease_store import LeaseStore

_INVALID = SettlementResult(SettlementOutcome.INVALID)


class Acknowledger:
    """Settlements of one gateway.

    `catch_up` is awaited if a receipt names an unknown key: another gateway may have created it.
    """

    def __init__(
        self,
        leases: LeaseStore,
        dead_letters: DeadLetterWriter,
        keys: ReceiptKeys,
        catch_up: Callable[[], Awaitable[None]],
        recorder: EventRecorder,
    ) -> None:
        self._leases = leases
        self._dead_letters = dead_letters
        self._keys = keys
        self._catch_up = catch_up
        self._recorder = recorder

    def verify_range(self, group: Group, receipts: Sequence[str]) -> AckedRange | None:
        """Return the acks of receipts that are all those of one response of message mode, in order, or None."""
        lease = self._keys.verify_range(receipts, group.name) if group.mode is Mode.MESSAGE else None
        return None if lease is None else AckedRange(lease, receipts)

    async def verify(self, group: Group, receipts: Sequence[str], client: str | None = None) -> list[Lease | None]:
        """Return the lease that each receipt proves, or None for an invalid receipt.

        With `client`, a receipt of another broadcast client is invalid: no client moves the position of another.
        """
        leases = self._keys.verify_each(receipts, group.name)
        if None in leases:
            if any(map(self._keys.has_unknown_key, receipts)):
                # While the store is unavailable, receipts of known keys must still be accepted.
                with contextlib.suppress(MqgateError):
                    await self._catch_up()
                leases = self._keys.verify_each(receipts, group.name)
            self._recorder.refused(group.topic, SettlementOutcome.INVALID, leases.count(None), group=group.name)
        if client is not None and group.mode is Mode.BROADCAST:
            return [lease if lease is not None and lease.client == client else None for lease in leases]
        return leases

    async def settle(
        self,
        group: Group,
        verb: Verb,
        leases: Sequence[Lease | None],
        receipts: Sequence[str],
        *,
        through: int | None = None,
        delay: timedelta | None = None,
        reason: str | None = None,
        visibility: timedelta | None = None,
    ) -> list[SettlementResult]:
        """Apply one verb to verified leases and return one result per receipt."""
        settlements = [
            Settlement(verb, lease, through, delay, reason, visibility, receipt)
            for lease, receipt in zip(leases, receipts, strict=True)
            if lease is not None
        ]
        if not settlements:
            return [_INVALID] * len(leases)
        if through is not None:
            for lease in leases:
                if lease is not None and not lease.start <= through < lease.next:
                    detail = f"through must be an offset of the batch: {lease.start} to {lease.next - 1}"
                    raise InvalidValue(detail, field="through")
        results = await self._leases.settle(group, settlements)
        self._recorder.settled(group, "", settlements, results)
        exhausted = [result.exhausted for result in results if result.exhausted is not None]
        await self._dead_letters.write_all(group, exhausted)
        return merge(leases, results)


def carried(receipts: Sequence[str], leases: Sequence[Lease | None]) -> list[Settlement]:
    """Return the acks that a receive carries."""
    if None in leases:
        proven = [pair for pair in zip(leases, receipts, strict=True) if pair[0] is not None]
        leases, receipts = [lease for lease, _ in proven], [receipt for _, receipt in proven]
    nothing = repeat(None)
    rows = zip(repeat(Verb.ACK), leases, nothing, nothing, nothing, nothing, receipts)
    # Tuples are built directly: a request may carry a thousand, and a call by field names is slow.
    return list(map(tuple.__new__, repeat(Settlement), rows))


def merge(leases: Sequence[Lease | None], results: Sequence[SettlementResult]) -> list[SettlementResult]:
    """Return the results in the order of the receipts. Receipts that prove no lease are invalid."""
    if len(results) == len(leases):
        return list(results)
    remaining = iter(results)
    return [_INVALID if lease is None else next(remaining) for lease in leases]
