"""Pulls that create the consumer group on a broker that lacks it. The gateway and Spark share this module."""

from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import Refused, decoding_response
from mqgate.rocketmq.messages import PullResponse, Status
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.remoting.record import decode_records

__all__ = ["READABLE_PAUSES", "pull", "pull_undecoded"]

# Seconds between pulls of a confirmed message: a broker makes it readable shortly after it has confirmed it.
READABLE_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_MAX_TRIES = 3


async def pull(
    client: RocketMQClient,
    broker: str,
    topic: str,
    queue: int,
    offset: int,
    max_count: int,
    *,
    group: str,
    park: float = 0.0,
) -> PullResponse:
    """Pull once, and decode the records."""
    pulled, data = await pull_undecoded(client, broker, topic, queue, offset, max_count, group=group, park=park)
    with decoding_response():
        return pulled._replace(records=decode_records(data)) if data else pulled


async def pull_undecoded(
    client: RocketMQClient,
    broker: str,
    topic: str,
    queue: int,
    offset: int,
    max_count: int,
    *,
    group: str,
    park: float = 0.0,
) -> tuple[PullResponse, bytes]:
    """Pull once, and return the records as undecoded bytes. An offset reset by an operator is skipped."""
    has_created_group = False
    for _ in range(_MAX_TRIES):
        try:
            pulled, data = await client.messages.pull_undecoded(
                broker, topic, queue, offset, max_count, group=group, park=park
            )
        except Refused as error:
            if error.code != ResponseCode.GROUP_NOT_EXIST or has_created_group:
                raise
            await client.admin.put_group(broker, group)
            has_created_group = True
            continue
        # A reset is returned once, instead of messages. The position of a group is moved by mqgate's seek only.
        if pulled.status is Status.MOVED and pulled.remark == "OFFSET_RESET":
            continue
        return pulled, data
    return PullResponse(Status.EMPTY, (), offset, 0, 0, ""), b""
