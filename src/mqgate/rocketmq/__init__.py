"""An asyncio client of RocketMQ's remoting protocol. It does not depend on the rest of mqgate.

client = RocketMQClient(["127.0.0.1:9876"])
route = await client.routes.find("orders")
sent = await client.messages.send("broker-a", "orders", 0, b"hello", {"UNIQ_KEY": "..."})
await client.close()
"""

from mqgate.rocketmq.client import RocketMQClient
from mqgate.rocketmq.errors import (
    NoResponse,
    NotSent,
    Refused,
    RocketMQError,
)
from mqgate.rocketmq.remoting.signature import Credentials

__all__ = ["Credentials", "NoResponse", "NotSent", "Refused", "RocketMQClient", "RocketMQError"]
