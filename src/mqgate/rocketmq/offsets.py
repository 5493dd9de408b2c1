"""Bounds of queues, offsets by time, and committed offsets of consumer groups."""

from collections.abc import Mapping
from typing import NamedTuple

from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.errors import decoding_response
from mqgate.rocketmq.remoting import loose_json
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode

__all__ = ["Offsets", "Progress"]


class Progress(NamedTuple):
    """The position of a group on a queue, as RocketMQ's own tools show it."""

    broker_offset: int
    consumer_offset: int


class Offsets:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def bounds(self, broker: str, topic: str) -> dict[int, tuple[int, int, int]]:
        """Return min offset, max offset and last append time by queue id, for all queues of a topic on a broker.

        The last append time is in milliseconds of the broker's clock, and 0 for an empty queue.
        """
        response = await self._brokers.call(broker, RequestCode.GET_TOPIC_STATS, {"topic": topic})
        with decoding_response():
            table = loose_json.parse(response.body).get("offsetTable") or {}
            return {
                dict(queue)["queueId"]: (at["minOffset"], at["maxOffset"], max(at.get("lastUpdateTimestamp", 0), 0))
                for queue, at in table.items()
            }

    async def max(self, broker: str, topic: str, queue_id: int) -> int:
        """Return the max offset of a queue, or 0 if the queue does not exist."""
        return await self._offset(broker, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})

    async def min(self, broker: str, topic: str, queue_id: int) -> int:
        return await self._offset(broker, RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue_id)})

    async def at(self, broker: str, topic: str, queue_id: int, instant_ms: int) -> int:
        """Return the first offset stored at or after an instant, or the max offset if there is none."""
        fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(instant_ms), "boundaryType": "LOWER"}
        return await self._offset(broker, RequestCode.SEARCH_OFFSET, fields)

    async def _offset(self, broker: str, code: int, fields: Mapping[str, str]) -> int:
        response = await self._brokers.call(broker, code, fields)
        with decoding_response():
            return int(response.fields["offset"])

    async def committed(self, broker: str, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset of a group, or None if it has none."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "setZeroIfNotFound": "false",
        }
        allowed = (ResponseCode.QUERY_NOT_FOUND, ResponseCode.GROUP_NOT_EXIST)
        response = await self._brokers.call(broker, RequestCode.QUERY_CONSUMER_OFFSET, fields, allowed=allowed)
        with decoding_response():
            return int(response.fields["offset"]) if response.code == ResponseCode.SUCCESS else None

    async def commit(self, broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset, forwards or backwards. The group must exist."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        await self._brokers.call(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def progress(self, broker: str, group: str, topic: str) -> dict[int, Progress]:
        """Return the position of a group by queue id, for all queues of a topic on a broker."""
        fields = {"consumerGroup": group, "topic": topic}
        response = await self._brokers.call(broker, RequestCode.GET_CONSUME_STATS, fields)
        with decoding_response():
            table = loose_json.parse(response.body).get("offsetTable") or {}
            return {
                dict(queue)["queueId"]: Progress(at["brokerOffset"], at["consumerOffset"])
                for queue, at in table.items()
            }
