"""Joins concurrent calls into one SQL statement: calls that arrive while two statements run share the next one.

A single caller does not wait. Hundreds of concurrent callers share one round trip, one fsync and one connection. If a
statement fails because of the items of one call, every call is tried alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mqgate.core.errors import Busy, MqgateError

__all__ = ["StatementBatcher"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MAX_RUNNING = 2
_MAX_ITEMS = 1_000


class _Call(NamedTuple):
    items: Sequence[Any]
    result: asyncio.Future[Any]


class StatementBatcher(Generic[_Item, _Result]):
    """Batcher of one statement. `work` returns one result per item, in order; `spawn` starts and owns a task."""

    def __init__(
        self,
        work: Callable[[Sequence[_Item]], Awaitable[Sequence[_Result]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._work = work
        self._spawn = spawn
        self._calls: deque[_Call] = deque()
        self._running = 0

    async def submit(self, items: Sequence[_Item]) -> Sequence[_Result]:
        if not items:
            return ()
        result: asyncio.Future[Sequence[_Result]] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(items, result))
        if self._running < _MAX_RUNNING:
            self._running += 1
            self._spawn(self._run())
        return await result

    async def _run(self) -> None:
        try:
            while self._calls:
                await self._execute(self._next_calls())
        finally:
            self._running -= 1

    def _next_calls(self) -> list[_Call]:
        """Remove and return waiting calls, up to _MAX_ITEMS items. A call is never split."""
        calls = [self._calls.popleft()]
        count = len(calls[0].items)
        while self._calls and count + len(self._calls[0].items) <= _MAX_ITEMS:
            calls.append(self._calls.popleft())
            count += len(calls[-1].items)
        return calls

    async def _execute(self, calls: Sequence[_Call]) -> None:
        try:
            results = await self._work([item for call in calls for item in call.items])
        except MqgateError as error:
            if len(calls) == 1 or isinstance(error, Busy):
                _fail(calls, error)
            else:
                for call in calls:
                    await self._execute([call])
        except Exception as error:  # noqa: BLE001 - every failure is passed to the callers
            _fail(calls, error)
        else:
            start = 0
            for call in calls:
                end = start + len(call.items)
                # A cancelled caller has a result that is done.
                if not call.result.done():
                    call.result.set_result(results[start:end])
                start = end


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.result.done():
            call.result.set_exception(error)
