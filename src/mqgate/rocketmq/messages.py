"""Send, pull and look up messages."""

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.errors import making_sense
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.codes import Request, Response
from mqgate.rocketmq.remoting.record import Record, decode_records, encode_batch

__all__ = ["Messages", "Pulled", "Sent", "Status"]

_DEGRADED = (Response.FLUSH_DISK_TIMEOUT, Response.SLAVE_NOT_AVAILABLE, Response.FLUSH_SLAVE_TIMEOUT)
_EMPTY = (Response.PULL_NOT_FOUND, Response.PULL_RETRY_IMMEDIATELY, Response.PULL_OFFSET_MOVED)
_MAY_PARK, _WITH_SUBSCRIPTION = 2, 4
# A broker looks for polls that are over every five seconds only.
_PARKED_SLACK = 6.0
_FOREVER_MS = str((1 << 62) - 1)
# Bytes of an offset id, and how many of them are the host's address.
_ID_HOSTS = {16: 4, 28: 16}


class Sent(NamedTuple):
    """Where a message, or the first of a batch, came to lie; degraded: flush or replica are not confirmed."""

    queue_offset: int
    offset_id: str
    is_degraded: bool


class Status(Enum):
    FOUND = "found"
    EMPTY = "empty"
    AGAIN = "again"
    MOVED = "moved"


class Pulled(NamedTuple):
    """A pull's answer. MOVED: the offset lies outside of [min, max], `remark` says how."""

    status: Status
    records: Sequence[Record]
    next_offset: int
    min_offset: int
    max_offset: int
    remark: str


_STATUS: Mapping[int, Status] = {
    Response.SUCCESS: Status.FOUND,
    Response.PULL_NOT_FOUND: Status.EMPTY,
    Response.PULL_RETRY_IMMEDIATELY: Status.AGAIN,
    Response.PULL_OFFSET_MOVED: Status.MOVED,
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
        properties: Mapping[str, str],
        *,
        producer: str = "mqgate",
        sys_flag: int = 0,
        deadline: float | None = None,
    ) -> Sent:
        """Store one message; NoAnswer: it may be stored."""
        fields = _send_fields(producer, topic, queue_id, sys_flag)
        fields["i"] = property_text.encode(properties)
        return await self._send(broker, Request.SEND_MESSAGE, fields, body, deadline)

    async def send_batch(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        messages: Sequence[tuple[bytes, Mapping[str, str]]],
        *,
        producer: str = "mqgate",
        deadline: float | None = None,
    ) -> Sent:
        """Store several at consecutive offsets, all or none; the broker adds no UNIQ_KEY to these."""
        fields = _send_fields(producer, topic, queue_id, 0)
        fields["m"] = "true"
        body = encode_batch([(body, property_text.encode(properties)) for body, properties in messages])
        return await self._send(broker, Request.SEND_BATCH, fields, body, deadline)

    async def _send(
        self, broker: str, code: int, fields: Mapping[str, str], body: bytes, deadline: float | None
    ) -> Sent:
        answer = await self._brokers.ask(broker, code, fields, body, allowed=_DEGRADED, deadline=deadline)
        with making_sense():
            return Sent(
                int(answer.fields["queueOffset"]),
                answer.fields.get("msgId", "").partition(",")[0],
                is_degraded=answer.code != Response.SUCCESS,
            )

    async def pull(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        *,
        group: str,
        park: float = 0.0,
        tags: str = "*",
    ) -> Pulled:
        """Messages from an offset on; `park`: wait at the broker for so many seconds, and up to 5 s longer."""
        pulled, data = await self.pull_undecoded(
            broker, topic, queue_id, offset, most, group=group, park=park, tags=tags
        )
        if not data:
            return pulled
        with making_sense():
            return pulled._replace(records=decode_records(data))

    async def pull_undecoded(
        self,
        broker: str,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        *,
        group: str,
        park: float = 0.0,
        tags: str = "*",
    ) -> tuple[Pulled, bytes]:
        """The same; the records are left as the bytes that they came as."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(most),
            "sysFlag": str(_WITH_SUBSCRIPTION | (_MAY_PARK if park else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(int(park * 1000)),
            "subscription": tags,
            "subVersion": "0",
            "expressionType": "TAG",
        }
        deadline = park + _PARKED_SLACK if park else None
        answer = await self._brokers.ask(broker, Request.PULL_MESSAGE, fields, allowed=_EMPTY, deadline=deadline)
        found = answer.fields
        with making_sense():
            pulled = Pulled(
                _STATUS[answer.code],
                (),
                int(found.get("nextBeginOffset", offset)),
                int(found.get("minOffset", 0)),
                int(found.get("maxOffset", 0)),
                answer.remark or "",
            )
        return pulled, answer.body if answer.code == Response.SUCCESS else b""

    async def query(
        self,
        broker: str,
        topic: str,
        key: str,
        *,
        most: int,
        begin_ms: int = 0,
        end_ms: int | None = None,
        is_unique: bool = False,
    ) -> list[Record]:
        """Messages by a word of their KEYS, or by UNIQ_KEY; the broker goes by hashes, so the rest is left out here."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": str(most),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": _FOREVER_MS if end_ms is None else str(end_ms),
        }
        if is_unique:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        answer = await self._brokers.ask(broker, Request.QUERY_MESSAGE, fields, allowed=(Response.QUERY_NOT_FOUND,))
        records = decode_records(answer.body) if answer.code == Response.SUCCESS else []
        return [each for each in records if each.topic == topic and _has_key(each, key, is_unique=is_unique)]

    async def view(self, offset_id: str) -> Record:
        """The message that an offset id names, from the broker that it names; Refused if it is gone.

        ValueError if it is no such id.
        """
        raw = bytes.fromhex(offset_id)
        if len(raw) not in _ID_HOSTS:
            raise ValueError(f"an offset id has 32 or 56 hexadecimal digits: {offset_id}")
        host = raw[: _ID_HOSTS[len(raw)]]
        port = int.from_bytes(raw[len(host) : len(host) + 4])
        shown = ".".join(map(str, host)) if len(host) == 4 else f"[{host.hex(':', 2)}]"  # noqa: PLR2004 - IPv4
        fields = {"offset": str(int.from_bytes(raw[len(host) + 4 :]))}
        answer = await self._brokers.ask_at(f"{shown}:{port}", Request.VIEW_MESSAGE, fields)
        with making_sense():
            return decode_records(answer.body)[0]


def _send_fields(producer: str, topic: str, queue_id: int, sys_flag: int) -> dict[str, str]:
    return {
        "a": producer,
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "j": "0",
        "k": "false",
        "m": "false",
    }


def _has_key(record: Record, key: str, *, is_unique: bool) -> bool:
    if is_unique:
        return record.properties.get("UNIQ_KEY") == key
    return key in record.properties.get("KEYS", "").split(" ")
