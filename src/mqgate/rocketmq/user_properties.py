"""Names of the properties of a record: id, key, tag and those of users.

The id is stored as UNIQ_KEY, the key as KEYS and the tag as TAGS, as the Java clients store them. RocketMQ stores its
own properties and those of users under one set of names. A user property whose name is reserved by RocketMQ is stored
under a prefix.
"""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ESCAPE_PREFIX", "ID", "KEY", "TAG", "Described", "described", "stored_name", "user_name"]

ID, KEY, TAG = "UNIQ_KEY", "KEYS", "TAGS"
ESCAPE_PREFIX = "mqgate_p."
_TRANSIENT = "__RMQ.TRANSIENT."
_RESERVED = frozenset(
    """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES
    CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER
    MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME __SHARDINGKEY INNER_NUM INNER_BASE INNER_MULTI_DISPATCH
    INNER_MULTI_QUEUE_OFFSET DUP_INFO TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS
    TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY __transactionId__ DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
    __CRC32# __BORNHOST BORN_TIMESTAMP ORIGIN_GROUP TRANS_OFFSET TRACE_CONTEXT TIMER_ROLL_LABEL TIMER_DELAY_LEVEL
    REDIRECT PROPERTY_FORWARD_QUEUE_ID _SYS_MSG_PRIORITY_ __LITE_TOPIC
    """.split()  # noqa: SIM905 - one name per line would fill sixty lines
)


def stored_name(name: str) -> str:
    """Return the name under which a user property is stored."""
    is_reserved = name in _RESERVED or name.startswith(_TRANSIENT)
    return f"{ESCAPE_PREFIX}{name}" if is_reserved else name


def user_name(stored: str) -> str | None:
    """Return the user's name of a stored property, or None for a property of RocketMQ."""
    return None if stored in _RESERVED else stored.removeprefix(ESCAPE_PREFIX)


class Described(NamedTuple):
    """The message fields that are stored as properties."""

    id: str | None
    key: str | None
    tag: str | None
    properties: Mapping[str, str]


def described(properties: Mapping[str, str]) -> Described:
    """Return the message fields in the properties of a record."""
    named = ((user_name(stored), value) for stored, value in properties.items())
    users = {name: value for name, value in named if name is not None}
    return Described(properties.get(ID), properties.get(KEY), properties.get(TAG), users)
