"""Wake-ups between gateways: a step on one gateway wakes the parked receives of another.

Scripts publish a wake-up only while a receive of the group is parked (the key `parked` exists). A gateway ignores its
own wake-ups. Wake-ups that were published while the subscription was broken are lost, so every new subscription wakes
all parked receives once.
"""

import asyncio
import math
from collections.abc import Callable

import msgspec
import structlog
from redis.exceptions import NoPermissionError, RedisError

from mqgate.adapters.redis.client import RedisClient
from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["WakeUpSubscription"]

_log = structlog.get_logger()
_RECONNECT_PAUSE = 0.25
_PING_INTERVAL = 15.0


class WakeUpSubscription:
    """Background subscription to the wake-up channel.

    `woken` receives group, client and instant (milliseconds of the Redis clock; 0 means now). `missed` is called when
    wake-ups may have been lost.
    """

    def __init__(
        self,
        redis: RedisClient,
        channel: str,
        gateway: str,
        woken: Callable[[str, str, int], None],
        missed: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._channel = channel
        self._gateway = gateway
        self._woken = woken
        self._missed = missed
        self._is_denied = False
        self._background = Background(self._loop)

    def start(self) -> None:
        self._background.start()

    async def stop(self) -> None:
        await self._background.stop()

    async def _loop(self) -> None:
        while True:
            try:
                await self._listen()
            except NoPermissionError as error:
                # Log the denial once, not at every attempt: only an operator can change it.
                if not self._is_denied:
                    _log.error("wake-up subscription denied by Redis", error=str(error))
                self._is_denied = True
            except (MqgateError, RedisError, OSError, TimeoutError) as error:
                _log.debug("wake-up subscription lost", error=str(error))
            await asyncio.sleep(_RECONNECT_PAUSE)

    async def _listen(self) -> None:
        connection = await self._redis.session()
        try:
            await connection.send_command("SUBSCRIBE", self._channel)
            is_ping_pending = False
            while True:
                try:
                    async with asyncio.timeout(_PING_INTERVAL):
                        message = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
                except TimeoutError:
                    # An idle channel is normal. A server that does not reply to a PING is gone.
                    if is_ping_pending:
                        raise
                    await connection.send_command("PING")
                    is_ping_pending = True
                    continue
                is_ping_pending = False
                if message[0] == b"subscribe":
                    self._is_denied = False
                    self._missed()
                elif message[0] == b"message":
                    gateway, group, client, at = msgspec.msgpack.decode(message[2])
                    if gateway != self._gateway:
                        self._woken(group, client, at)
        finally:
            await connection.disconnect(nowait=True)
