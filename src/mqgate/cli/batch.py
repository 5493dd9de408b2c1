"""The messages of one receive, the number of printed ones, and the receipts still to settle.

A lease on a queue covers the whole batch. One receipt settles it, and `through` settles a prefix of it. In message
mode every message has its own receipt. A message is acknowledged only after it was printed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mqgate.client import Client, GatewayError, receipts_of

__all__ = ["PendingSettlement", "PrintedBatch", "check", "settle"]

_DONE = frozenset({"applied", "duplicate", "late_applied"})


class PendingSettlement(NamedTuple):
    """Receipts to acknowledge, a queue lease only `through` an offset, and receipts to release."""

    ack: list[str]
    through: int | None
    release: list[str]


class PrintedBatch:
    """The messages of one receive, of which the first `printed` were printed."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self.messages: list[dict[str, Any]] = response.get("messages", [])
        self.lease: dict[str, Any] | None = response.get("lease")
        self.printed = 0

    def settlement(self) -> PendingSettlement:
        """Return the receipts to settle if no more messages of this batch are printed."""
        is_whole = self.printed == len(self.messages)
        if self.lease is None:
            receipts = receipts_of({"messages": self.messages})
            return PendingSettlement(receipts[: self.printed], None, receipts[self.printed :])
        receipt = [self.lease["receipt"]]
        if not self.printed and not is_whole:
            return PendingSettlement([], None, receipt)
        return PendingSettlement(receipt, None if is_whole else self.messages[self.printed - 1]["offset"], [])


def settle(client: Client, group: str, pending: PendingSettlement) -> None:
    """Settle the receipts. Raise GatewayError if a printed message could not be acknowledged."""
    if pending.release:
        client.nack_all(group, pending.release, delay=0, reason="mqgate sub stopped before it printed the message")
    if pending.through is not None:
        client.ack(group, pending.ack[0], through=pending.through)
    elif pending.ack:
        check(client.ack_all(group, pending.ack))


def check(outcomes: Sequence[Mapping[str, Any]]) -> None:
    """Raise GatewayError for the first receipt that was not acknowledged."""
    refused = [outcome["outcome"] for outcome in outcomes if outcome["outcome"] not in _DONE]
    if refused:
        raise GatewayError(
            status=409,
            code=refused[0],
            title="Not acknowledged",
            detail="the messages printed last could not be acknowledged and may be delivered again",
            retryable=False,
        )
