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
from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RemoteProtocolError, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["may_try_other_broker", "translated", "translating"]

_BUSY = {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE}
_ILLEGAL = {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}


def translated(error: RocketMQError, topic: str, *, is_send: bool = False) -> MqgateError:
    """Return the mqgate error for a client error. `is_send`: the request may have been executed in spite of it."""
    code = error.code if isinstance(error, Refused) else None
    # RocketMQ 4 has no response code for denied access, only this text.
    if isinstance(error, Refused) and "AclException" in error.remark:
        return StorageRefused(f"RocketMQ refused the request of the gateway: {error}")
    if is_send and (isinstance(error, NoResponse | RemoteProtocolError) or code == ResponseCode.SYSTEM_ERROR):
        return OutcomeUnknown(
            f"the broker did not confirm the message: publish it again with the same idempotency key ({error})",
            retry_after=1,
        )
    if code is None or code in _BUSY or code == ResponseCode.SYSTEM_ERROR:
        return StorageUnavailable(f"RocketMQ is unavailable: {error}", retry_after=1)
    if code == ResponseCode.TOPIC_NOT_EXIST:
        detail = f"RocketMQ has no topic {topic}: create it again with PUT /v1/topics/{topic}"
        return TopicNotFound(detail, topic=topic)
    if code in _ILLEGAL:
        return InvalidValue(f"the broker refused the message: {error}", field="body")
    return StorageRefused(f"RocketMQ refused the request of the gateway: {error}")


def may_try_other_broker(error: RocketMQError) -> bool:
    """Return whether the broker certainly did not store the message and another broker may accept it."""
    if isinstance(error, Refused):
        return error.code in _BUSY or error.code in {ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST}
    return isinstance(error, NotSent)


@contextlib.contextmanager
def translating(topic: str) -> Iterator[None]:
    """Raise mqgate errors instead of client errors."""
    try:
        yield
    except RocketMQError as error:
        raise translated(error, topic) from error
