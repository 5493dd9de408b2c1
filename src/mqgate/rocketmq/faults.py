"""What an error of the client means. The gateway and Spark map the kind to errors of their own."""

from enum import Enum, auto

from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["FaultKind", "kind_of", "names_missing_queue"]


class FaultKind(Enum):
    """The meaning of an error, independent of the request that failed."""

    NOT_SENT = auto()
    UNTRUSTED = auto()
    NO_RESPONSE = auto()
    MALFORMED = auto()
    BUSY = auto()
    UNAVAILABLE = auto()
    FAILED = auto()
    TOPIC_MISSING = auto()
    ILLEGAL = auto()
    ACCESS_DENIED = auto()
    OTHER = auto()


_BY_CODE: dict[int, FaultKind] = {
    ResponseCode.SYSTEM_BUSY: FaultKind.BUSY,
    ResponseCode.FLOW_CONTROL: FaultKind.BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE: FaultKind.UNAVAILABLE,
    ResponseCode.SYSTEM_ERROR: FaultKind.FAILED,
    ResponseCode.TOPIC_NOT_EXIST: FaultKind.TOPIC_MISSING,
    ResponseCode.MESSAGE_ILLEGAL: FaultKind.ILLEGAL,
    ResponseCode.INVALID_PARAMETER: FaultKind.ILLEGAL,
    ResponseCode.NO_PERMISSION: FaultKind.ACCESS_DENIED,
}
# RocketMQ 4 has no response code for denied access, only this text.
_NO_ACCESS = "AclException"
# Brokers report an unknown queue only in the text of a response.
_NO_QUEUE = "queueId"
# OpenSSL error code, contained in the text of the wrapping error.
_NO_TRUST = "CERTIFICATE_VERIFY_FAILED"


def kind_of(error: RocketMQError) -> FaultKind:
    """Return what an error of the client means."""
    if isinstance(error, Refused):
        return FaultKind.ACCESS_DENIED if _NO_ACCESS in error.remark else _BY_CODE.get(error.code, FaultKind.OTHER)
    if isinstance(error, NotSent):
        return FaultKind.UNTRUSTED if _NO_TRUST in str(error) else FaultKind.NOT_SENT
    return FaultKind.NO_RESPONSE if isinstance(error, NoResponse) else FaultKind.MALFORMED


def names_missing_queue(error: RocketMQError) -> bool:
    """Return whether a broker rejected the request because it does not have the queue."""
    return isinstance(error, Refused) and _NO_QUEUE in error.remark
