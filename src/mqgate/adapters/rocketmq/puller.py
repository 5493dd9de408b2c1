"""Pulls that create the consumer group on a broker that lacks it."""

from mqgate.adapters.rocketmq.topics import Queue, Topic
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, decoding_response
from mqgate.rocketmq.messages import PullResponse, Status
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.record import decode_records

__all__ = ["pull", "pull_undecoded"]

_MAX_TRIES = 3


async def pull(
    client: RocketMQClient, topic: Topic, queue: Queue, offset: int, max_count: int, *, group: str, park: float = 0.0
) -> PullResponse:
    """Pull once, and decode the records."""
    pulled, data = await pull_undecoded(client, topic, queue, offset, max_count, group=group, park=park)
    with decoding_response():
        return pulled._replace(records=decode_records(data)) if data else pulled


async def pull_undecoded(
    client: RocketMQClient, topic: Topic, queue: Queue, offset: int, max_count: int, *, group: str, park: float = 0.0
) -> tuple[PullResponse, bytes]:
    """Pull once, and return the records as undecoded bytes. An offset reset by an operator is skipped."""
    for _ in range(_MAX_TRIES):
        try:
            pulled, data = await client.messages.pull_undecoded(
                queue.broker, topic.wire, queue.id, offset, max_count, group=group, park=park
            )
        except Refused as error:
            if error.code != ResponseCode.GROUP_NOT_EXIST:
                raise
            await client.admin.put_group(queue.broker, group)
            continue
        # A reset is returned once, instead of messages. The position of a group is moved by mqgate's seek only.
        if pulled.status is Status.MOVED and pulled.remark == "OFFSET_RESET":
            continue
        return pulled, data
    return PullResponse(Status.EMPTY, (), offset, 0, 0, ""), b""
