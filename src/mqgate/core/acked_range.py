"""Acks of consecutive messages of one lease, as one value."""

from collections.abc import Sequence
from typing import overload

from mqgate.core.lease import Lease, Settlement, Verb

__all__ = ["AckedRange"]


class AckedRange(Sequence[Settlement]):
    """The acks of all messages of `lease`, in order, with one receipt each.

    Most receives of message mode ack all that the last one returned. The separate settlements are created only for
    readers that need them.
    """

    __slots__ = ("lease", "receipts")

    def __init__(self, lease: Lease, receipts: Sequence[str]) -> None:
        self.lease = lease
        self.receipts = receipts

    def __len__(self) -> int:
        return len(self.receipts)

    @overload
    def __getitem__(self, index: int) -> Settlement: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Settlement]: ...

    def __getitem__(self, index: int | slice) -> Settlement | Sequence[Settlement]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        receipt = self.receipts[index]
        offset = self.lease.start + (index if index >= 0 else len(self) + index)
        return Settlement(Verb.ACK, self.lease._replace(start=offset, next=offset + 1), receipt=receipt)
