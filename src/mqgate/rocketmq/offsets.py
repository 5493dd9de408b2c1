"""Ends of queues, offsets by time, and what consumer groups have committed."""

from collections.abc import Mapping
from typing import NamedTuple

from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.errors import decoding_response
from mqgate.rocketmq.remoting import loose_json
from mqgate.rocketmq.remoting.codes import RequestCode, ResponseCode

__all__ = ["Offsets", "Progress"]


class Progress(NamedTuple):
    """How far a group is on a queue, as RocketMQ's own tools see it."""

    broker_offset: int
    consumer_offset: int


class Offsets:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def bounds(self, broker: str, topic: str) -> dict[int, tuple[int, int, int]]:
        """Of all queues of a topic on a broker: the first and the next offset, and when the last message was stored.

        In milliseconds by the broker's clock; 0 if there is none.
        """
        response = await self._brokers.call(broker, RequestCode.GET_TOPIC_STATS, {"topic": topic})
        with decoding_response():
            table = loose_json.parse(response.body).get("offsetTable") or {}
            return {
                dict(queue)["queueId"]: (at["minOffset"], at["maxOffset"], max(at.get("lastUpdateTimestamp", 0), 0))
                for queue, at in table.items()
            }

    async def max(self, broker: str, topic: str, queue_id: int) -> int:
        """The next offset; 0 also for what does not exist."""
        return await self._offset(broker, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})

    async def min(self, broker: str, topic: str, queue_id: int) -> int:
        return await self._offset(broker, RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue_id)})

    async def at(self, broker: str, topic: str, queue_id: int, instant_ms: int) -> int:
        """The first offset stored at or after an instant; the next offset if there is none."""
        fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(instant_ms), "boundaryType": "LOWER"}
        return await self._offset(broker, RequestCode.SEARCH_OFFSET, fields)

    async def _offset(self, broker: str, code: int, fields: Mapping[str, str]) -> int:
        response = await self._brokers.call(broker, code, fields)
        with decoding_response():
            return int(response.fields["offset"])

    async def committed(self, broker: str, group: str, topic: str, queue_id: int) -> int | None:
        """What a group has committed; None if nothing."""
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
        """Commit, forwards or backwards; the group must exist."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        await self._brokers.call(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def progress(self, broker: str, group: str, topic: str) -> dict[int, Progress]:
        """A group's place on all queues of a topic on a broker."""
        fields = {"consumerGroup": group, "topic": topic}
        response = await self._brokers.call(broker, RequestCode.GET_CONSUME_STATS, fields)
        with decoding_response():
            table = loose_json.parse(response.body).get("offsetTable") or {}
            return {
                dict(queue)["queueId"]: Progress(at["brokerOffset"], at["consumerOffset"])
                for queue, at in table.items()
            }
