"""Wake-ups between gateways: what was freed, moved or given back on one wakes who waits on another.

Scripts publish only while somebody waits for the group (a key says so), and we do not hear ourselves. A subscription
that broke may have missed something: when it stands again, everybody who waits tries once.
"""

import asyncio
import math
from collections.abc import Callable

import msgspec
import structlog
from redis.exceptions import NoPermissionError, RedisError

from mqgate.adapters.redis.server import Server
from mqgate.background import Background
from mqgate.core.errors import MqgateError

__all__ = ["Wakes"]

_log = structlog.get_logger()
_PAUSE = 0.25
_IDLE = 15.0


class Wakes:
    """`woken` hears group, client and when (by the store's clock in ms, 0: now); `missed`, that some got lost."""

    def __init__(
        self,
        server: Server,
        channel: str,
        gateway: str,
        woken: Callable[[str, str, int], None],
        missed: Callable[[], None],
    ) -> None:
        self._server = server
        self._channel = channel
        self._gateway = gateway
        self._woken = woken
        self._missed = missed
        self._is_refused = False
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
                # It stays so until somebody changes it: said once, not four times a second.
                if not self._is_refused:
                    _log.error(
                        "Redis refuses wake-ups: who waits here hears nothing of other gateways", error=str(error)
                    )
                self._is_refused = True
            except (MqgateError, RedisError, OSError, TimeoutError) as error:
                _log.debug("subscription to wake-ups broke", error=str(error))
            await asyncio.sleep(_PAUSE)

    async def _listen(self) -> None:
        connection = await self._server.session()
        try:
            await connection.send_command("SUBSCRIBE", self._channel)
            is_asked = False
            while True:
                try:
                    async with asyncio.timeout(_IDLE):
                        told = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
                except TimeoutError:
                    # Silence is usual; two of them with a question in between are not.
                    if is_asked:
                        raise
                    await connection.send_command("PING")
                    is_asked = True
                    continue
                is_asked = False
                if told[0] == b"subscribe":
                    self._is_refused = False
                    self._missed()
                elif told[0] == b"message":
                    gateway, group, client, at = msgspec.msgpack.decode(told[2])
                    if gateway != self._gateway:
                        self._woken(group, client, at)
        finally:
            await connection.disconnect(nowait=True)
