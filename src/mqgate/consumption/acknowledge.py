"""Ack, nack and extend: receipts in, outcomes out."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import repeat

from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.core.entries import Group
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.core.lease import Lease, Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.receipt import ReceiptKeys
from mqgate.events.recorder import EventRecorder
from mqgate.ports.lease_store import LeaseStore

_INVALID = SettlementResult(SettlementOutcome.INVALID)


class Acknowledger:
    """`settled` hears of what was done here, so that those who wait for it can be woken; not of acks by a receive.

    `catch_up` is awaited when a receipt names a key that is not known here: another gateway may have made it.
    """

    def __init__(
        self,
        leases: LeaseStore,
        undertaker: DeadLetterWriter,
        keys: ReceiptKeys,
        settled: Callable[[tuple[str, str], Verb], None],
        catch_up: Callable[[], Awaitable[None]],
        recorder: EventRecorder,
    ) -> None:
        self._leases = leases
        self._undertaker = undertaker
        self.keys = keys
        self._settled = settled
        self._catch_up = catch_up
        self._recorder = recorder

    async def read(self, group: Group, receipts: Sequence[str]) -> list[Lease | None]:
        """The leases that receipts prove; None for those that prove nothing here."""
        leases = self.keys.verify_each(receipts, group.name)
        if None not in leases:
            return leases
        if any(map(self.keys.has_unknown_key, receipts)):
            # While the store is away we go by the keys that we have: the other receipts are not to suffer.
            with contextlib.suppress(MqgateError):
                await self._catch_up()
            leases = self.keys.verify_each(receipts, group.name)
        self._recorder.refused(group.topic, SettlementOutcome.INVALID, leases.count(None), group=group.name)
        return leases

    async def settle(
        self,
        group: Group,
        verb: Verb,
        receipts: Sequence[str],
        *,
        through: int | None = None,
        delay: timedelta | None = None,
        reason: str | None = None,
        visibility: timedelta | None = None,
    ) -> list[SettlementResult]:
        """Apply one verb to receipts, an outcome each; what is refused changes nothing."""
        leases = await self.read(group, receipts)
        settlements = [
            Settlement(verb, lease, through, delay, reason, visibility, receipt)
            for lease, receipt in zip(leases, receipts, strict=True)
            if lease is not None
        ]
        for lease in leases:
            if through is not None and lease is not None and not lease.start <= through < lease.next:
                raise InvalidValue(f"through must lie in the batch: {lease.start} to {lease.next - 1}", field="through")
        settled = await self._leases.settle(group, settlements) if settlements else ()
        self._recorder.settled(group, "", settlements, settled)
        await self._undertaker.bury_all(group, [each.exhausted for each in settled if each.exhausted is not None])
        self._tell(leases, settled, verb)
        return merge(leases, settled)

    def _tell(self, leases: Sequence[Lease | None], settled: Sequence[SettlementResult], verb: Verb) -> None:
        for lease, each in zip((lease for lease in leases if lease), settled, strict=True):
            if each.outcome.is_done:
                self._settled((lease.group, lease.client), verb)


def carried(receipts: Sequence[str], leases: Sequence[Lease | None]) -> list[Settlement]:
    """The acks that a receive carries."""
    if None in leases:
        proven = [pair for pair in zip(leases, receipts, strict=True) if pair[0] is not None]
        leases, receipts = [lease for lease, _ in proven], [receipt for _, receipt in proven]
    nothing = repeat(None)
    rows = zip(repeat(Verb.ACK), leases, nothing, nothing, nothing, nothing, receipts)
    # Not by its fields' names: there may be a thousand of them in a request.
    return list(map(tuple.__new__, repeat(Settlement), rows))


def merge(leases: Sequence[Lease | None], settled: Sequence[SettlementResult]) -> list[SettlementResult]:
    """Outcomes in the order of the receipts; those that prove nothing are invalid."""
    if len(settled) == len(leases):
        return list(settled)
    done = iter(settled)
    return [_INVALID if lease is None else next(done) for lease in leases]
