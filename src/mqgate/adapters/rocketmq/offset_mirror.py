"""Committed offsets as RocketMQ's own consumer offsets, so that its dashboard and tools show our groups' lag."""

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
    """The log says which brokers there are."""

    def __init__(self, client: RocketMQClient, log: RocketMQMessageLog, wire: Callable[[str], str]) -> None:
        self._client = client
        self._log = log
        self._wire = wire

    async def open(self, group: str) -> None:
        wire = self._wire(group)
        with translating(group):
            await asyncio.gather(*(self._open_at(broker, wire) for broker in await self._log.masters()))

    async def _open_at(self, broker: str, wire: str) -> None:
        """What a Java consumer's first heart-beat makes: the group, and the topic by which the tools find it."""
        admin = self._client.admin
        # It may be there, with settings that somebody chose.
        if not await admin.has_group(broker, wire):
            await admin.put_group(broker, wire)
        retries = f"%RETRY%{wire}"
        if await admin.topic(broker, retries) is None:
            await admin.put_topic(broker, retries, 1)

    async def read(self, group: str, topic: str, queues: Sequence[str]) -> Mapping[str, int | None]:
        wire, wire_topic = self._wire(group), self._wire(topic)
        places = [_place(queue) for queue in queues]
        found = await asyncio.gather(
            *(self._client.offsets.committed(broker, wire, wire_topic, queue_id) for broker, queue_id in places),
            return_exceptions=True,
        )
        known: dict[str, int | None] = {}
        for queue, offset in zip(queues, found, strict=True):
            if isinstance(offset, RocketMQError):
                _log.info("broker did not tell where a group stood", group=group, queue=queue, error=str(offset))
            elif isinstance(offset, BaseException):
                raise offset
            else:
                known[queue] = offset
        return known

    async def write(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        wire, wire_topic = self._wire(group), self._wire(topic)
        with translating(topic):
            await asyncio.gather(*(self._write(wire, wire_topic, *_place(name), at) for name, at in offsets.items()))

    async def _write(self, group: str, topic: str, broker: str, queue_id: int, offset: int) -> None:
        try:
            await self._client.offsets.commit(broker, group, topic, queue_id, offset)
        except Refused as error:
            if error.code == ResponseCode.GROUP_NOT_EXIST:
                # A broker that joined later, or was set up anew.
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


def _place(queue: str) -> tuple[str, int]:
    broker, _, queue_id = queue.rpartition(":")
    return broker, int(queue_id)
