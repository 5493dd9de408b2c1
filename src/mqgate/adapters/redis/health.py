"""What an operator wants to know of the server: is it full, who fills it, does it let us do all that a gateway does.

Keys are walked over, a page at a time, and nobody else is held up.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from mqgate.adapters.redis.server import Server
from mqgate.core.errors import MqgateError, StorageRefused, StorageUnavailable

__all__ = ["Health", "Sizes", "health", "sizes"]

# What a person who waits for the answer has patience for; a server that others use too may have millions.
MOST_KEYS = 200_000
_PAGE = 500


class Sizes(NamedTuple):
    """Bytes by group; `is_whole`: all keys of the server were looked at."""

    of_groups: Counter[str]
    is_whole: bool


class Health(NamedTuple):
    """What the server says of itself; why we cannot hear of other gateways, if so; what groups take, or why not."""

    info: Mapping[str, str]
    deaf: str
    sizes: Sizes | str


async def health(url: str, prefix: str, *, patience: float) -> Health:
    """Raises if it cannot be reached, or will not do."""
    server = Server(url, timeout=patience)
    try:
        await server.connect()
        info = await server.info()
        deaf = ""
        try:
            await _try_to_listen(server, f"{prefix}:wake", patience)
        except MqgateError as error:
            deaf = error.detail
        try:
            return Health(info, deaf, await sizes(server, prefix))
        except MqgateError as error:
            return Health(info, deaf, error.detail)
    finally:
        await server.close()


async def sizes(server: Server, prefix: str, most_keys: int = MOST_KEYS) -> Sizes:
    """How much memory groups take."""
    found: Counter[str] = Counter()
    ours = re.compile(re.escape(f"{prefix}:{{").encode() + rb"([^}]*)\}")
    pattern = re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + ":{*"
    cursor, seen = b"0", 0
    while seen < most_keys:
        cursor, keys = await server.command("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
        seen += _PAGE
        # One that goes meanwhile has no size.
        told = await asyncio.gather(*(server.command("MEMORY", "USAGE", key) for key in keys))
        for key, size in zip(keys, told, strict=True):
            if (match := ours.match(key)) is not None:
                found[match[1].decode("utf-8", "replace")] += size or 0
        if cursor == b"0":
            return Sizes(found, is_whole=True)
    return Sizes(found, is_whole=False)


async def _try_to_listen(server: Server, channel: str, patience: float) -> None:
    """Raises if the server does not let us hear of what others do."""
    connection = await server.session()
    try:
        async with asyncio.timeout(patience):
            await connection.send_command("SUBSCRIBE", channel)
            await connection.read_response()
    except ResponseError as error:
        raise StorageRefused(f"Redis refuses SUBSCRIBE {channel}: {error}") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StorageUnavailable(f"no answer to SUBSCRIBE {channel}: {error}", retry_after=1) from error
    finally:
        await connection.disconnect(nowait=True)
