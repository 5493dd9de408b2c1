"""What `mqgate doctor` says of Redis: whether it will do, lets us do all that a gateway does, and how full it is."""

from collections import Counter
from collections.abc import Mapping

from mqgate import bootstrap
from mqgate.cli.check import Check
from mqgate.core.errors import MqgateError
from mqgate.settings import RedisSettings

__all__ = ["examine", "judge_memory"]

_SHOWN = 3
_FULL = 0.8


async def examine(settings: RedisSettings) -> list[Check]:
    """Look at the server that the settings name, as the user whom they name."""
    try:
        found = await bootstrap.redis_health(settings)
    except MqgateError as error:
        return [Check(check="redis: reachable", status="fail", detail=error.detail)]
    version = found.info["redis_version"]
    checks = [Check(check="redis: reachable", status="ok", detail=f"{version} answers, and lets us in")]
    checks += [judge_memory(found.info), _judge_rights(found.wake_up_error)]
    if isinstance(found.sizes, str):
        detail = f"their memory is not told to us: {found.sizes}"
        return [*checks, Check(check="redis: groups", status="warn", detail=detail)]
    return [*checks, _of_groups(*found.sizes)]


def judge_memory(info: Mapping[str, str]) -> Check:
    """How much is used of what there is."""
    used, most = int(info["used_memory"]), int(info.get("maxmemory", "0"))
    if not most:
        return Check(check="redis: memory", status="ok", detail=f"{_mib(used)} are used, maxmemory is not set")
    if used <= _FULL * most:
        return Check(check="redis: memory", status="ok", detail=f"{_mib(used)} of {_mib(most)} are used")
    detail = f"{_mib(used)} of {_mib(most)} are used; when it is full, receives and acks answer 507"
    return Check(check="redis: memory", status="warn", detail=detail)


def _judge_rights(deaf: str) -> Check:
    if not deaf:
        return Check(check="redis: wake-ups", status="ok", detail="gateways hear of each other")
    detail = f"who waits on one gateway does not hear what is done on another: {deaf}"
    return Check(check="redis: wake-ups", status="fail", detail=detail)


def _of_groups(found: Counter[str], is_whole: bool) -> Check:
    largest = ", ".join(f"{name} {_mib(size)}" for name, size in found.most_common(_SHOWN))
    detail = f"{len(found)} take {_mib(found.total())}" + (f", most of all {largest}" if largest else "")
    return Check(check="redis: groups", status="ok", detail=detail if is_whole else f"{detail}; there are more keys")


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
