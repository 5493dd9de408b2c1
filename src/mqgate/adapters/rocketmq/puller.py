"""Pulls as every part of the adapter needs them: the group is made if a broker lacks it."""

from mqgate.adapters.rocketmq.topics import Queue, Topic
from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, decoding_response
from mqgate.rocketmq.messages import PullResponse, Status
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.record import decode_records

__all__ = ["pull", "pull_undecoded"]

_MOST_TRIES = 3


async def pull(
    client: RocketMQClient, topic: Topic, queue: Queue, offset: int, most: int, *, group: str, park: float = 0.0
) -> PullResponse:
    """One pull; an operator's reset, which RocketMQ tells once and instead of messages, is heard and left alone."""
    pulled, data = await pull_undecoded(client, topic, queue, offset, most, group=group, park=park)
    with decoding_response():
        return pulled._replace(records=decode_records(data)) if data else pulled


async def pull_undecoded(
    client: RocketMQClient, topic: Topic, queue: Queue, offset: int, most: int, *, group: str, park: float = 0.0
) -> tuple[PullResponse, bytes]:
    """The same; the records are left as the bytes that they came as."""
    for _ in range(_MOST_TRIES):
        try:
            pulled, data = await client.messages.pull_undecoded(
                queue.broker, topic.wire, queue.id, offset, most, group=group, park=park
            )
        except Refused as error:
            if error.code != ResponseCode.GROUP_NOT_EXIST:
                raise
            await client.admin.put_group(queue.broker, group)
            continue
        # Where a group stands is decided by our leases; mqgate's own seek is the way to move it.
        if pulled.status is Status.MOVED and pulled.remark == "OFFSET_RESET":
            continue
        return pulled, data
    return PullResponse(Status.EMPTY, (), offset, 0, 0, ""), b""
