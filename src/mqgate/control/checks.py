"""Checks of the servers behind a gateway, for its readiness and for alarms."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from mqgate.core.errors import MqgateError

__all__ = ["Check", "run_check"]

Check = Callable[[], Awaitable[object]]
_DEADLINE = 2.0


async def run_check(check: Check) -> str | dict[str, str]:
    """Return "ok" or an error code, or the states of several servers by name."""
    try:
        result = await asyncio.wait_for(check(), _DEADLINE)
    except MqgateError as error:
        return error.code
    except TimeoutError:
        return "timeout"
    return dict(result) if isinstance(result, Mapping) else "ok"
