"""Checks of `mqgate doctor` for Redis: suitability, permissions and memory."""

from collections import Counter
from collections.abc import Mapping

from mqgate import bootstrap
from mqgate.cli.check import Check
from mqgate.core.errors import MqgateError
from mqgate.settings import RedisSettings

__all__ = ["check_memory", "run_checks"]

_MAX_SHOWN = 3
_WARN_RATIO = 0.8


async def run_checks(settings: RedisSettings) -> list[Check]:
    """Check the Redis of the settings, with the user of the settings."""
    try:
        found = await bootstrap.redis_health(settings)
    except MqgateError as error:
        return [Check(check="redis: reachable", status="fail", detail=error.detail)]
    version = found.info["redis_version"]
    checks = [Check(check="redis: reachable", status="ok", detail=f"{version} responds, and access is granted")]
    checks += [check_memory(found.info), _check_wake_ups(found.wake_up_error)]
    if isinstance(found.sizes, str):
        detail = f"the memory of the groups is not available: {found.sizes}"
        return [*checks, Check(check="redis: groups", status="warn", detail=detail)]
    return [*checks, _describe_groups(*found.sizes)]


def check_memory(info: Mapping[str, str]) -> Check:
    """Compare the used memory with maxmemory."""
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", "0"))
    if not limit:
        return Check(check="redis: memory", status="ok", detail=f"{_mib(used)} are used, maxmemory is not set")
    if used <= _WARN_RATIO * limit:
        return Check(check="redis: memory", status="ok", detail=f"{_mib(used)} of {_mib(limit)} are used")
    detail = f"{_mib(used)} of {_mib(limit)} are used; above the limit, receives and acks return 507"
    return Check(check="redis: memory", status="warn", detail=detail)


def _check_wake_ups(deaf: str) -> Check:
    if not deaf:
        return Check(check="redis: wake-ups", status="ok", detail="gateways can notify each other")
    detail = f"parked receives are not notified by other gateways: {deaf}"
    return Check(check="redis: wake-ups", status="fail", detail=detail)


def _describe_groups(found: Counter[str], is_whole: bool) -> Check:
    largest = ", ".join(f"{name} {_mib(size)}" for name, size in found.most_common(_MAX_SHOWN))
    detail = f"{len(found)} use {_mib(found.total())}" + (f", the largest: {largest}" if largest else "")
    return Check(check="redis: groups", status="ok", detail=detail if is_whole else f"{detail}; not all keys were read")


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
