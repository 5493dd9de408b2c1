"""Ack, nack and extend: receipts in, outcomes out."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from mqgate.consumption.rescue import Undertaker
from mqgate.core.entries import Group
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.core.lease import Lease, Outcome, Settled, Settlement, Verb
from mqgate.core.receipt import ReceiptKeys
from mqgate.ports.lease_store import LeaseStore

_INVALID = Settled(Outcome.INVALID)


class Acknowledger:
    """`settled` hears of what was done here, so that those who wait for it can be woken; not of acks by a receive.

    `catch_up` is awaited when a receipt names a key that is not known here: another gateway may have made it.
    """

    def __init__(
        self,
        leases: LeaseStore,
        undertaker: Undertaker,
        keys: ReceiptKeys,
        settled: Callable[[tuple[str, str], Verb], None],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._leases = leases
        self._undertaker = undertaker
        self.keys = keys
        self._settled = settled
        self._catch_up = catch_up

    async def read(self, group: Group, receipts: Sequence[str]) -> list[Lease | None]:
        """The leases that receipts prove; None for those that prove nothing here."""
        leases = [self.keys.verify(receipt, group.name) for receipt in receipts]
        if None not in leases or not any(map(self.keys.is_strange, receipts)):
            return leases
        # While the store is away we go by the keys that we have: the other receipts are not to suffer.
        with contextlib.suppress(MqgateError):
            await self._catch_up()
        return [self.keys.verify(receipt, group.name) for receipt in receipts]

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
    ) -> list[Settled]:
        """Apply one verb to receipts, an outcome each; what is refused changes nothing."""
        leases = await self.read(group, receipts)
        settlements = [
            Settlement(verb=verb, lease=lease, through=through, delay=delay, reason=reason, visibility=visibility)
            for lease in leases
            if lease is not None
        ]
        for lease in leases:
            if through is not None and lease is not None and not lease.start <= through < lease.next:
                raise InvalidValue(f"through must lie in the batch: {lease.start} to {lease.next - 1}", field="through")
        settled = await self._leases.settle(group, settlements) if settlements else ()
        for each in settled:
            if each.doomed is not None:
                await self._undertaker.bury(group, each.doomed)
        self._tell(leases, settled, verb)
        return merge(leases, settled)

    def _tell(self, leases: Sequence[Lease | None], settled: Sequence[Settled], verb: Verb) -> None:
        for lease, each in zip((lease for lease in leases if lease), settled, strict=True):
            if each.outcome.is_done:
                self._settled((lease.group, lease.client), verb)


def merge(leases: Sequence[Lease | None], settled: Sequence[Settled]) -> list[Settled]:
    """Outcomes in the order of the receipts; those that prove nothing are invalid."""
    done = iter(settled)
    return [_INVALID if lease is None else next(done) for lease in leases]
