"""Sends, pulls and queries messages."""

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.errors import DECODE_ERRORS, decoding_response, malformed_response
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode
from mqgate.rocketmq.remoting.command import Command, encode_head
from mqgate.rocketmq.remoting.record import Record, decode_records, encode_batch
from mqgate.rocketmq.user_properties import ID, KEY

__all__ = ["Messages", "PullResponse", "Sent", "Status"]

_DEGRADED = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
# Plain integers: the JSON encoder is slow for members of an enumeration.
_SEND_MESSAGE, _SEND_BATCH, _PULL_MESSAGE = (
    int(RequestCode.SEND_MESSAGE),
    int(RequestCode.SEND_BATCH),
    int(RequestCode.PULL_MESSAGE),
)
_MAY_PARK, _WITH_SUBSCRIPTION = 2, 4
_PARKING, _NOT_PARKING = str(_WITH_SUBSCRIPTION | _MAY_PARK), str(_WITH_SUBSCRIPTION)
# A broker ends expired parked pulls every five seconds only.
_PARKED_SLACK = 6.0
_FOREVER_MS = str((1 << 62) - 1)
# Length of an offset id in bytes -> length of the host address in it.
_ID_HOSTS = {16: 4, 28: 16}
_encode_json = msgspec.json.Encoder().encode


class Sent(NamedTuple):
    """The position of a sent message, or of the first of a batch. Degraded: flush or replication is not confirmed."""

    queue_offset: int
    offset_id: str
    is_degraded: bool


class Status(Enum):
    FOUND = "found"
    EMPTY = "empty"
    AGAIN = "again"
    MOVED = "moved"


class PullResponse(NamedTuple):
    """The response to a pull. MOVED: the offset is outside of [min, max]; `remark` gives the reason."""

    status: Status
    records: Sequence[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    remark: str


_STATUS: Mapping[int, Status] = {
    ResponseCode.SUCCESS: Status.FOUND,
    ResponseCode.PULL_NOT_FOUND: Status.EMPTY,
    ResponseCode.PULL_RETRY_IMMEDIATELY: Status.AGAIN,
    ResponseCode.PULL_OFFSET_MOVED: Status.MOVED,
}


class Messages:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def send(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str] | str,
        *,
        producer: str = "mqgate",
        sys_flag: int = 0,
        deadline: float | None = None,
    ) -> Sent:
        """Send one message with its properties, or their encoded text. After NoResponse it may be stored."""
        text = properties if isinstance(properties, str) else property_text.encode(properties)
        now_ms = time.time_ns() // 1_000_000
        # Only time, properties and opaque differ between the messages of a queue.
        start = _send_head(producer, topic, queue_id, sys_flag)
        head = b'%b%d","i":%b},"opaque":' % (start, now_ms, _encode_json(text))
        sending = self._brokers.send(broker, head, body, allowed=_DEGRADED, deadline=deadline)
        if sending is None:
            fields = {**_send_fields(producer, topic, queue_id, sys_flag), "g": str(now_ms), "i": text}
            sending = self._brokers.call(broker, _SEND_MESSAGE, fields, body, allowed=_DEGRADED, deadline=deadline)
        return _sent(await sending)

    async def send_batch(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        messages: Sequence[tuple[bytes, Mapping[str, str] | str]],
        *,
        producer: str = "mqgate",
        deadline: float | None = None,
    ) -> Sent:
        """Send several messages, stored at consecutive offsets or not at all. The broker adds no UNIQ_KEY to these."""
        fields = {
            **_send_fields(producer, topic, queue_id, 0),
            "g": str(time.time_ns() // 1_000_000),
            "m": "true",
        }
        body = encode_batch(
            [
                (body, properties if isinstance(properties, str) else property_text.encode(properties))
                for body, properties in messages
            ]
        )
        return _sent(await self._brokers.call(broker, _SEND_BATCH, fields, body, allowed=_DEGRADED, deadline=deadline))

    async def pull(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        group: str,
        park: float = 0.0,
        tags: str = "*",
    ) -> PullResponse:
        """Pull messages from an offset. `park`: seconds to wait at the broker for a message; it may take 5 s longer."""
        pulled, data = await self.pull_undecoded(
            broker, topic, queue_id, offset, max_count, group=group, park=park, tags=tags
        )
        if not data:
            return pulled
        with decoding_response():
            return pulled._replace(records=decode_records(data))

    async def pull_undecoded(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        group: str,
        park: float = 0.0,
        tags: str = "*",
    ) -> tuple[PullResponse, bytes]:
        """Pull messages, and return the records as undecoded bytes."""
        deadline = park + _PARKED_SLACK if park else None
        # Only offset and opaque differ between the pulls of a group from a queue.
        head = b'%b%d"},"opaque":' % (_pull_head(group, topic, queue_id, max_count, park, tags), offset)
        pulling = self._brokers.send(broker, head, b"", allowed=_EMPTY, deadline=deadline)
        if pulling is None:
            fields = {**_pull_fields(group, topic, queue_id, max_count, park, tags), "queueOffset": str(offset)}
            pulling = self._brokers.call(broker, _PULL_MESSAGE, fields, allowed=_EMPTY, deadline=deadline)
        code, _, found, body, _, remark = await pulling
        try:
            after = int(found.get("nextBeginOffset", offset))
            bounds = int(found.get("minOffset", 0)), int(found.get("maxOffset", 0))
            # tuple.__new__ is faster than the constructor, and every pull creates one.
            pulled = tuple.__new__(PullResponse, (_STATUS[code], (), after, *bounds, remark or ""))
        except DECODE_ERRORS as error:
            raise malformed_response(error) from error
        return pulled, body if code == 0 else b""

    async def query(
        self,
        broker: str,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int = 0,
        end_ms: int | None = None,
        is_unique: bool = False,
    ) -> list[Record]:
        """Return messages by a word of their KEYS, or by UNIQ_KEY. The broker compares hashes; others are removed."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": str(max_count),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": _FOREVER_MS if end_ms is None else str(end_ms),
        }
        if is_unique:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        response = await self._brokers.call(
            broker, RequestCode.QUERY_MESSAGE, fields, allowed=(ResponseCode.QUERY_NOT_FOUND,)
        )
        records = decode_records(response.body) if response.code == ResponseCode.SUCCESS else []
        return [record for record in records if record.topic == topic and _has_key(record, key, is_unique=is_unique)]

    async def view(self, offset_id: str) -> Record:
        """Return the message of an offset id, from the broker in the id.

        Raise Refused if the message was deleted, and ValueError if the id is invalid.
        """
        raw = bytes.fromhex(offset_id)
        if len(raw) not in _ID_HOSTS:
            raise ValueError(f"an offset id must have 32 or 56 hexadecimal digits: {offset_id}")
        host = raw[: _ID_HOSTS[len(raw)]]
        port = int.from_bytes(raw[len(host) : len(host) + 4])
        address = ".".join(map(str, host)) if len(host) == 4 else f"[{host.hex(':', 2)}]"  # noqa: PLR2004 - IPv4
        fields = {"offset": str(int.from_bytes(raw[len(host) + 4 :]))}
        response = await self._brokers.call_address(f"{address}:{port}", RequestCode.VIEW_MESSAGE, fields)
        with decoding_response():
            return decode_records(response.body)[0]


def _sent(response: Command) -> Sent:
    fields = response.fields
    try:
        offset, ids = int(fields["queueOffset"]), fields.get("msgId", "")
        return tuple.__new__(Sent, (offset, ids.partition(",")[0], response.code != 0))
    except DECODE_ERRORS as error:
        raise malformed_response(error) from error


@lru_cache(maxsize=4096)
def _send_fields(producer: str, topic: str, queue_id: int, sys_flag: int) -> Mapping[str, str]:
    """Return the fields that all sends of one producer to one queue share."""
    return {
        "a": producer,
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": str(sys_flag),
        "h": "0",
        "j": "0",
        "k": "false",
        "m": "false",
    }


@lru_cache(maxsize=4096)
def _send_head(producer: str, topic: str, queue_id: int, sys_flag: int) -> bytes:
    """Return the head of a send up to the digits of its time, the field g."""
    head = encode_head(_SEND_MESSAGE, {**_send_fields(producer, topic, queue_id, sys_flag), "g": ""})
    return head.removesuffix(b'"},"opaque":')


@lru_cache(maxsize=4096)
def _pull_head(group: str, topic: str, queue_id: int, max_count: int, park: float, tags: str) -> bytes:
    """Return the head of a pull up to the digits of its offset."""
    fields = _pull_fields(group, topic, queue_id, max_count, park, tags)
    return encode_head(_PULL_MESSAGE, {**fields, "queueOffset": ""}).removesuffix(b'"},"opaque":')


def _pull_fields(group: str, topic: str, queue_id: int, max_count: int, park: float, tags: str) -> Mapping[str, str]:
    """Return the fields that all pulls of one group from one queue share."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "maxMsgNums": str(max_count),
        "sysFlag": _PARKING if park else _NOT_PARKING,
        "commitOffset": "0",
        "suspendTimeoutMillis": str(int(park * 1000)),
        "subscription": tags,
        "subVersion": "0",
        "expressionType": "TAG",
    }


def _has_key(record: Record, key: str, *, is_unique: bool) -> bool:
    if is_unique:
        return record.properties.get(ID) == key
    return key in record.properties.get(KEY, "").split(" ")
