"""The rules of settlements and the life of a message, as tables. The diagrams of docs/semantics.md are drawn from them.

Only epochs are compared, never clocks, so a slow consumer cannot release or move the lease of another consumer.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from mqgate.core.lease import SettlementOutcome, Verb

__all__ = ["LIFE", "OUTCOMES", "LeaseStatus", "MessageEvent", "MessageState", "outcome_of"]


class LeaseStatus(StrEnum):
    """The status of the lease that a receipt names, as the lease state shows it."""

    CURRENT = "current"
    EXPIRED = "expired"
    ACKED = "acked"
    NACKED = "nacked"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    UNKNOWN = "unknown"


_APPLIED, _LATE, _DUPLICATE, _LOST, _GONE = (
    SettlementOutcome.APPLIED,
    SettlementOutcome.LATE_APPLIED,
    SettlementOutcome.DUPLICATE,
    SettlementOutcome.LOST,
    SettlementOutcome.GONE,
)

# The outcome of each verb (ack, nack, extend) by the status of the lease.
_ROWS: Mapping[LeaseStatus, tuple[SettlementOutcome, SettlementOutcome, SettlementOutcome]] = {
    # The lease is current and has not expired.
    LeaseStatus.CURRENT: (_APPLIED, _APPLIED, _APPLIED),
    # The lease has expired, but nothing newer was granted.
    LeaseStatus.EXPIRED: (_LATE, _LATE, _LATE),
    # The receipt was spent by an ack, or by a nack.
    LeaseStatus.ACKED: (_DUPLICATE, _LOST, _LOST),
    LeaseStatus.NACKED: (_LOST, _DUPLICATE, _LOST),
    # A newer epoch was granted, or the message is exhausted.
    LeaseStatus.SUPERSEDED: (_LOST, _LOST, _LOST),
    # Retention deleted the message, and no newer epoch covers it.
    LeaseStatus.DELETED: (_GONE, _GONE, _GONE),
    # Another incarnation, revoked by a seek or a rewind, or too old to be checked.
    LeaseStatus.UNKNOWN: (_GONE, _GONE, _GONE),
}
OUTCOMES: Mapping[tuple[LeaseStatus, Verb], SettlementOutcome] = MappingProxyType(
    {(status, verb): outcome for status, row in _ROWS.items() for verb, outcome in zip(Verb, row, strict=True)}
)


def outcome_of(status: LeaseStatus, verb: Verb) -> SettlementOutcome:
    """Return the outcome of a settlement."""
    return OUTCOMES[status, verb]


class MessageState(StrEnum):
    """The state of a stored message for one group."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    EXHAUSTED = "exhausted"
    SETTLED = "settled"


class MessageEvent(StrEnum):
    """An event that changes the state of a message for one group."""

    GRANT = "grant"
    ACK = "ack"
    FAIL = "nack or lease expiry"
    FAIL_LAST = "nack or lease expiry of the last attempt"
    RELEASE = "release"
    EXTEND = "extend"
    FILTER = "filter"
    BEHIND_KEY = "an earlier message of its key is unsettled"
    DUE = "the backoff ends, or the key is free"
    LIMIT = "maxAttempts was lowered"
    DEAD_LETTER = "dead letter"
    EXPIRE = "retention"


_READY, _LEASED, _WAITING, _EXHAUSTED, _SETTLED = MessageState
LIFE: Mapping[tuple[MessageState, MessageEvent], MessageState] = MappingProxyType(
    {
        (_READY, MessageEvent.GRANT): _LEASED,
        (_READY, MessageEvent.LIMIT): _EXHAUSTED,
        (_READY, MessageEvent.EXPIRE): _SETTLED,
        # A late ack, nack or extend of the newest, expired lease.
        (_READY, MessageEvent.ACK): _SETTLED,
        (_READY, MessageEvent.FAIL): _WAITING,
        (_READY, MessageEvent.FAIL_LAST): _EXHAUSTED,
        (_READY, MessageEvent.EXTEND): _LEASED,
        (_LEASED, MessageEvent.ACK): _SETTLED,
        (_LEASED, MessageEvent.FILTER): _SETTLED,
        (_LEASED, MessageEvent.FAIL): _WAITING,
        (_LEASED, MessageEvent.FAIL_LAST): _EXHAUSTED,
        (_LEASED, MessageEvent.RELEASE): _READY,
        (_LEASED, MessageEvent.BEHIND_KEY): _WAITING,
        (_LEASED, MessageEvent.EXTEND): _LEASED,
        (_WAITING, MessageEvent.DUE): _READY,
        (_WAITING, MessageEvent.ACK): _SETTLED,
        (_WAITING, MessageEvent.FAIL): _WAITING,
        (_WAITING, MessageEvent.FAIL_LAST): _EXHAUSTED,
        (_WAITING, MessageEvent.EXTEND): _LEASED,
        (_WAITING, MessageEvent.EXPIRE): _SETTLED,
        (_EXHAUSTED, MessageEvent.DEAD_LETTER): _SETTLED,
        (_EXHAUSTED, MessageEvent.EXPIRE): _SETTLED,
    }
)
