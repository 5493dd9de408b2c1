"""The outcome of an ack or an unlock, in the words that clients of the dialect log.

In place of the lock time of the original there is the epoch of the lease: it identifies the grant too, without a
clock. forceAck is always false: clients cannot request it here.
"""

from typing import NamedTuple

from mqgate.core.lease import Lease, SettlementOutcome
from mqgate.http.compat.mq.envelope import INVALID, OK

_WRONG_CONSUMER = "the requestId was not given to this consumer"


class AckInfo(NamedTuple):
    status: int
    message: str

    def as_object(self) -> dict[str, object]:
        return {"status": self.status, "message": self.message}


NOTHING_TO_ACK = AckInfo(INVALID, "ack illegal null-0:0,0,0,false")
ILLEGAL = AckInfo(INVALID, f"ack illegal: {_WRONG_CONSUMER}")


def of_ack(lease: Lease | None, outcome: SettlementOutcome) -> AckInfo:
    """Return the text of an ack. Only `ok` states that this call committed; the others changed nothing."""
    if lease is None:
        return ILLEGAL
    info = _info(lease)
    match outcome:
        case SettlementOutcome.APPLIED | SettlementOutcome.LATE_APPLIED:
            return AckInfo(OK, f"ok {info}")
        case SettlementOutcome.DUPLICATE:
            return AckInfo(OK, f"offset has committed {info}")
        case SettlementOutcome.LOST:
            return AckInfo(OK, f"ack lockTime small than the current one {info}")
        case SettlementOutcome.GONE:
            return AckInfo(OK, f"lock not exist {info}")
        case SettlementOutcome.INVALID:
            return ILLEGAL


def of_unlock(lease: Lease | None, outcome: SettlementOutcome) -> AckInfo:
    """Return the text of an unlock."""
    if lease is None or outcome is SettlementOutcome.INVALID:
        return ILLEGAL
    is_unlocked = outcome in {SettlementOutcome.APPLIED, SettlementOutcome.LATE_APPLIED}
    return AckInfo(OK, f"{_info(lease)} unlock:{'true' if is_unlocked else 'false'}")


def _info(lease: Lease) -> str:
    broker, _, number = lease.queue.rpartition(":")
    return f"{broker}-{number}:{lease.start},{lease.next},{lease.epoch},false"
