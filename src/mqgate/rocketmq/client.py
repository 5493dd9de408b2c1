"""The client of one cluster. A process needs only one."""

import ssl
from collections.abc import Sequence

from mqgate.rocketmq.admin import Admin
from mqgate.rocketmq.brokers import Brokers
from mqgate.rocketmq.messages import Messages
from mqgate.rocketmq.offsets import Offsets
from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.remoting.signature import Credentials
from mqgate.rocketmq.routes import Routes

__all__ = ["RocketMQClient"]


class RocketMQClient:
    """A client of one cluster. It connects on the first call. `deadline` is the timeout of a call in seconds."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        deadline: float = 3.0,
    ) -> None:
        self._peers = Peers(credentials, tls, deadline)
        self.routes = Routes(self._peers, tuple(name_servers))
        self.brokers = Brokers(self._peers, self.routes)
        self.messages = Messages(self.brokers)
        self.offsets = Offsets(self.brokers)
        self.admin = Admin(self.brokers, self.routes)

    async def close(self) -> None:
        await self._peers.close()
