"""What one receive granted, how much of it was printed, and what is therefore to be settled.

A lease on a queue covers the whole batch and is settled by one receipt, a prefix of it by `through`. In
message mode every message has its own receipt. Nothing is acknowledged that was not printed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mqgate.client import Client, GatewayError, receipts_of

__all__ = ["PendingSettlement", "PrintedBatch", "check", "settle"]

_DONE = frozenset({"applied", "duplicate", "late_applied"})


class PendingSettlement(NamedTuple):
    """Receipts to acknowledge (a lease's only `through` an offset), and receipts to hand back."""

    ack: list[str]
    through: int | None
    hand_back: list[str]


class PrintedBatch:
    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.messages: list[dict[str, Any]] = answer.get("messages", [])
        self.lease: dict[str, Any] | None = answer.get("lease")
        self.printed = 0

    def settlement(self) -> PendingSettlement:
        """What is due if nothing more of this batch is printed."""
        is_whole = self.printed == len(self.messages)
        if self.lease is None:
            receipts = receipts_of({"messages": self.messages})
            return PendingSettlement(receipts[: self.printed], None, receipts[self.printed :])
        receipt = [self.lease["receipt"]]
        if not self.printed and not is_whole:
            return PendingSettlement([], None, receipt)
        return PendingSettlement(receipt, None if is_whole else self.messages[self.printed - 1]["offset"], [])


def settle(client: Client, group: str, due: PendingSettlement) -> None:
    """Acknowledge and hand back; raises if something printed could not be acknowledged."""
    if due.hand_back:
        client.nack_all(group, due.hand_back, delay=0, reason="mqgate sub stopped before it printed this")
    if due.through is not None:
        client.ack(group, due.ack[0], through=due.through)
    elif due.ack:
        check(client.ack_all(group, due.ack))


def check(outcomes: list[dict[str, Any]]) -> None:
    """Raise for the first outcome that says: not acknowledged."""
    refused = [outcome["outcome"] for outcome in outcomes if outcome["outcome"] not in _DONE]
    if refused:
        raise GatewayError(
            status=409,
            code=refused[0],
            title="Not acknowledged",
            detail="what was printed last could not be acknowledged and may be delivered again",
            retryable=False,
        )
