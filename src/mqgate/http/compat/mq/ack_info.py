"""What became of an ack or an unlock, in the words that the dialect's clients log.

Where the original wrote the time of the lock we write the lease's epoch: it says which grant this
was as well, without a clock. forceAck is always false: clients cannot ask for it here.
"""

from typing import NamedTuple

from mqgate.core.lease import Lease, SettlementOutcome
from mqgate.http.compat.mq.envelope import INVALID, OK

_NOBODYS = "the requestId was not given to this consumer"


class AckInfo(NamedTuple):
    status: int
    message: str

    def as_object(self) -> dict[str, object]:
        return {"status": self.status, "message": self.message}


NOTHING_TO_ACK = AckInfo(INVALID, "ack illegal null-0:0,0,0,false")
ILLEGAL = AckInfo(INVALID, f"ack illegal: {_NOBODYS}")


def of_ack(lease: Lease, outcome: SettlementOutcome) -> AckInfo:
    """Only `ok` says that this very call committed; the others changed nothing."""
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


def of_unlock(lease: Lease, outcome: SettlementOutcome) -> AckInfo:
    if outcome is SettlementOutcome.INVALID:
        return ILLEGAL
    is_unlocked = outcome in {SettlementOutcome.APPLIED, SettlementOutcome.LATE_APPLIED}
    return AckInfo(OK, f"{_info(lease)} unlock:{'true' if is_unlocked else 'false'}")


def _info(lease: Lease) -> str:
    broker, _, number = lease.queue.rpartition(":")
    return f"{broker}-{number}:{lease.start},{lease.next},{lease.epoch},false"
