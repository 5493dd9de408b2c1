"""Diagnostics for operators: INFO, the right to subscribe to wake-ups, and the memory of each group.

Keys are read with SCAN, one page at a time, so that other clients are not blocked.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.keys import group_of_key, group_scan_pattern, wake_up_channel
from mqgate.core.errors import MqgateError, StorageRefused, StorageUnavailable

__all__ = ["GroupSizes", "RedisReport", "group_sizes", "redis_report"]

# Bounds the time of a report: a server that other applications share may have millions of keys.
MAX_KEYS = 200_000
_PAGE = 500


class GroupSizes(NamedTuple):
    """Bytes by group. `is_complete` is false if the scan stopped before all keys of the server were read."""

    bytes_by_group: Counter[str]
    is_complete: bool


class RedisReport(NamedTuple):
    """INFO of the server, why wake-ups cannot be received ("" if they can), and group sizes or why they are unknown."""

    info: Mapping[str, str]
    wake_up_error: str
    sizes: GroupSizes | str


async def redis_report(url: str, prefix: str, *, max_wait: float) -> RedisReport:
    """Return a report. Raise if the server cannot be reached or is not suitable."""
    redis = RedisClient(url, timeout=max_wait)
    try:
        await redis.connect()
        info = await redis.info()
        wake_up_error = ""
        try:
            await _check_subscribe(redis, wake_up_channel(prefix), max_wait)
        except MqgateError as error:
            wake_up_error = error.detail
        try:
            return RedisReport(info, wake_up_error, await group_sizes(redis, prefix))
        except MqgateError as error:
            return RedisReport(info, wake_up_error, error.detail)
    finally:
        await redis.close()


async def group_sizes(redis: RedisClient, prefix: str, max_keys: int = MAX_KEYS) -> GroupSizes:
    """Return the memory usage of each group."""
    sizes: Counter[str] = Counter()
    pattern = group_scan_pattern(prefix)
    cursor, seen = b"0", 0
    while seen < max_keys:
        cursor, keys = await redis.command("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
        seen += _PAGE
        # The usage is None for a key that was deleted after the scan.
        usages = await asyncio.gather(*(redis.command("MEMORY", "USAGE", key) for key in keys))
        for key, usage in zip(keys, usages, strict=True):
            if (group := group_of_key(prefix, key)) is not None:
                sizes[group] += usage or 0
        if cursor == b"0":
            return GroupSizes(sizes, is_complete=True)
    return GroupSizes(sizes, is_complete=False)


async def _check_subscribe(redis: RedisClient, channel: str, max_wait: float) -> None:
    """Raise if the gateway cannot subscribe to wake-ups."""
    session = await redis.session()
    try:
        async with asyncio.timeout(max_wait):
            await session.send_command("SUBSCRIBE", channel)
            await session.read_response()
    except ResponseError as error:
        raise StorageRefused(f"Redis denied SUBSCRIBE {channel}: {error}") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StorageUnavailable(f"no response to SUBSCRIBE {channel}: {error}", retry_after=1) from error
    finally:
        await session.disconnect(nowait=True)
