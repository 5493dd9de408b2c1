"""Stores committed offsets as RocketMQ consumer offsets, so that its dashboard and tools show the lag of groups."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from mqgate.adapters.rocketmq.faults import translating
from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["RocketMQOffsetMirror"]

_log = structlog.get_logger()


class RocketMQOffsetMirror:
    """The OffsetMirror port on RocketMQ. `log` returns the brokers."""

    def __init__(self, client: RocketMQClient, log: RocketMQMessageLog, wire: Callable[[str], str]) -> None:
        self._client = client
        self._log = log
        self._wire = wire

    async def open(self, group: str) -> None:
        wire = self._wire(group)
        with translating(group):
            await asyncio.gather(*(self._open_at(broker, wire) for broker in await self._log.masters()))

    async def _open_at(self, broker: str, wire: str) -> None:
        """Create the group, and the retry topic by which RocketMQ's tools find it, as a Java consumer would."""
        admin = self._client.admin
        # An existing group keeps its settings.
        if not await admin.has_group(broker, wire):
            await admin.put_group(broker, wire)
        retry_topic = f"%RETRY%{wire}"
        if await admin.topic(broker, retry_topic) is None:
            await admin.put_topic(broker, retry_topic, 1)

    async def read(self, group: str, topic: str, queues: Sequence[str]) -> Mapping[str, int | None]:
        wire, wire_topic = self._wire(group), self._wire(topic)
        found = await asyncio.gather(
            *(self._client.offsets.committed(broker, wire, wire_topic, id_) for broker, id_ in map(_split, queues)),
            return_exceptions=True,
        )
        known: dict[str, int | None] = {}
        for queue, offset in zip(queues, found, strict=True):
            if isinstance(offset, RocketMQError):
                _log.info("committed offset not reported by broker", group=group, queue=queue, error=str(offset))
            elif isinstance(offset, BaseException):
                raise offset
            else:
                known[queue] = offset
        return known

    async def write(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        wire, wire_topic = self._wire(group), self._wire(topic)
        with translating(topic):
            await asyncio.gather(*(self._write(wire, wire_topic, *_split(name), at) for name, at in offsets.items()))

    async def _write(self, group: str, topic: str, broker: str, queue_id: int, offset: int) -> None:
        try:
            await self._client.offsets.commit(broker, group, topic, queue_id, offset)
        except Refused as error:
            if error.code == ResponseCode.GROUP_NOT_EXIST:
                # The broker joined later, or was set up again.
                await self._open_at(broker, group)
                await self._client.offsets.commit(broker, group, topic, queue_id, offset)
            elif error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise

    async def forget(self, group: str) -> None:
        wire = self._wire(group)
        with translating(group):
            masters = await self._log.masters()
            await asyncio.gather(*(self._client.admin.delete_group(broker, wire) for broker in masters))
            await self._client.admin.delete_topic(f"%RETRY%{wire}", masters)


def _split(queue: str) -> tuple[str, int]:
    broker, _, queue_id = queue.rpartition(":")
    return broker, int(queue_id)
