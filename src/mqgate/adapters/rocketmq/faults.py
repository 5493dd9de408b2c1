"""What RocketMQ says, in mqgate's words: one error and one retry rule for each answer.

| from RocketMQ                                    | becomes             | retry                                   |
|--------------------------------------------------|---------------------|-----------------------------------------|
| no connection, no route, GO_AWAY                 | storage_unavailable | yes; without key on another broker first |
| SYSTEM_BUSY, FLOW_CONTROL, SERVICE_NOT_AVAILABLE | storage_unavailable | yes; without key on another broker first |
| any of these, to a message whose key fixes a queue | queue_unavailable | yes                                     |
| no answer or nonsense, SYSTEM_ERROR to a send    | unknown             | yes, with the same idempotency key      |
| TOPIC_NOT_EXIST, everywhere                      | topic_not_found     | no: register the topic again            |
| TOPIC_NOT_EXIST, on one broker                   | storage_unavailable | yes; without key on another broker first |
| MESSAGE_ILLEGAL, INVALID_PARAMETER               | invalid_value       | no: the message is refused              |
| NO_PERMISSION, anything else                     | storage_refused     | no: an operator has to mend it          |
"""

import contextlib
from collections.abc import Iterator

from mqgate.core.errors import (
    InvalidValue,
    MqgateError,
    OutcomeUnknown,
    StorageRefused,
    StorageUnavailable,
    TopicNotFound,
)
from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RemoteProtocolError, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["is_elsewhere_worth_a_try", "translated", "translating"]

_BUSY = {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE}
_ILLEGAL = {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}


def translated(error: RocketMQError, topic: str, *, is_send: bool = False) -> MqgateError:
    """The fact that an error reports; `is_send`: it matters whether it was done all the same."""
    code = error.code if isinstance(error, Refused) else None
    # RocketMQ 4 has no number for who may not; its text does.
    if isinstance(error, Refused) and "AclException" in error.remark:
        return StorageRefused(f"RocketMQ refuses the gateway: {error}")
    if is_send and (isinstance(error, NoResponse | RemoteProtocolError) or code == ResponseCode.SYSTEM_ERROR):
        return OutcomeUnknown(
            f"the broker did not say whether it stored this: repeat it with the same idempotency key ({error})",
            retry_after=1,
        )
    if code is None or code in _BUSY or code == ResponseCode.SYSTEM_ERROR:
        return StorageUnavailable(f"RocketMQ does not answer as it should: {error}", retry_after=1)
    if code == ResponseCode.TOPIC_NOT_EXIST:
        return TopicNotFound(f"RocketMQ has no topic {topic}: PUT /v1/topics/{topic} makes it again", topic=topic)
    if code in _ILLEGAL:
        return InvalidValue(f"the broker refuses the message: {error}", field="body")
    return StorageRefused(f"RocketMQ refuses the gateway: {error}")


def is_elsewhere_worth_a_try(error: RocketMQError) -> bool:
    """Whether another broker may take what this one has certainly not stored."""
    if isinstance(error, Refused):
        return error.code in _BUSY or error.code in {ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST}
    return isinstance(error, NotSent)


@contextlib.contextmanager
def translating(topic: str) -> Iterator[None]:
    """Let no RocketMQError out."""
    try:
        yield
    except RocketMQError as error:
        raise translated(error, topic) from error
