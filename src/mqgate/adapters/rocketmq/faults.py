"""Translates errors of the RocketMQ client to errors of mqgate.

| from RocketMQ                                    | becomes             | retry                                      |
|--------------------------------------------------|---------------------|--------------------------------------------|
| no connection, no route, GO_AWAY                 | storage_unavailable | yes; without a key on another broker first |
| SYSTEM_BUSY, FLOW_CONTROL, SERVICE_NOT_AVAILABLE | storage_unavailable | yes; without a key on another broker first |
| any of these, for a message with a key           | queue_unavailable   | yes                                        |
| send: no or malformed response, SYSTEM_ERROR     | unknown             | yes, with the same idempotency key         |
| TOPIC_NOT_EXIST from all brokers                 | topic_not_found     | no: register the topic again               |
| TOPIC_NOT_EXIST from one broker                  | storage_unavailable | yes; without a key on another broker first |
| MESSAGE_ILLEGAL, INVALID_PARAMETER               | invalid_value       | no: the message is refused                 |
| NO_PERMISSION, any other code                    | storage_refused     | no: an operator has to fix it              |
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
from mqgate.rocketmq.errors import Refused, RocketMQError
from mqgate.rocketmq.faults import FaultKind, kind_of
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["may_try_other_broker", "translated", "translating"]

_NOT_STORED = {FaultKind.NOT_SENT, FaultKind.UNTRUSTED, FaultKind.BUSY, FaultKind.UNAVAILABLE}
_MAY_BE_STORED = {FaultKind.NO_RESPONSE, FaultKind.MALFORMED, FaultKind.FAILED}


def translated(error: RocketMQError, topic: str, *, is_send: bool = False) -> MqgateError:
    """Return the mqgate error for a client error. `is_send`: the request may have been executed in spite of it."""
    kind = kind_of(error)
    if is_send and kind in _MAY_BE_STORED:
        return OutcomeUnknown(
            f"the broker did not confirm the message: publish it again with the same idempotency key ({error})",
            retry_after=1,
        )
    if kind in _NOT_STORED or kind in _MAY_BE_STORED:
        return StorageUnavailable(f"RocketMQ is unavailable: {error}", retry_after=1)
    if kind is FaultKind.TOPIC_MISSING:
        detail = f"RocketMQ has no topic {topic}: create it again with PUT /v1/topics/{topic}"
        return TopicNotFound(detail, topic=topic)
    if kind is FaultKind.ILLEGAL:
        return InvalidValue(f"the broker refused the message: {error}", field="body")
    return StorageRefused(f"RocketMQ refused the request of the gateway: {error}")


def may_try_other_broker(error: RocketMQError) -> bool:
    """Return whether the broker certainly did not store the message and another broker may accept it."""
    kind = kind_of(error)
    # Not for all denied access: permissions of a topic differ between brokers, users of RocketMQ 4 do not.
    if kind is FaultKind.ACCESS_DENIED:
        return isinstance(error, Refused) and error.code == ResponseCode.NO_PERMISSION
    return kind in _NOT_STORED or kind is FaultKind.TOPIC_MISSING


@contextlib.contextmanager
def translating(topic: str) -> Iterator[None]:
    """Raise mqgate errors instead of client errors."""
    try:
        yield
    except RocketMQError as error:
        raise translated(error, topic) from error
