"""Joins calls into fewer, larger statements: what comes while two are under way goes into the next one.

A lone caller waits for nobody. Of many at once, some hundred share one journey and one fsync, which else would be a
journey, an fsync and a connection each. If a statement fails for what one of them brought, each is tried by itself.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mqgate.core.errors import Busy, MqgateError

__all__ = ["StatementBatcher"]

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")
_AT_ONCE = 2
_MOST = 1_000


class _Call(NamedTuple):
    items: Sequence[Any]
    answer: asyncio.Future[Any]


class StatementBatcher(Generic[_Asked, _Told]):
    """`work` takes items and answers each, in their order; `spawn` starts a task and owns it."""

    def __init__(
        self,
        work: Callable[[Sequence[_Asked]], Awaitable[Sequence[_Told]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._work = work
        self._spawn = spawn
        self._calls: deque[_Call] = deque()
        self._running = 0

    async def ask(self, items: Sequence[_Asked]) -> Sequence[_Told]:
        if not items:
            return ()
        answer: asyncio.Future[Sequence[_Told]] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(items, answer))
        if self._running < _AT_ONCE:
            self._running += 1
            self._spawn(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._calls:
                await self._answer(self._next())
        finally:
            self._running -= 1

    def _next(self) -> list[_Call]:
        """Whole calls, as many as fit."""
        calls = [self._calls.popleft()]
        count = len(calls[0].items)
        while self._calls and count + len(self._calls[0].items) <= _MOST:
            calls.append(self._calls.popleft())
            count += len(calls[-1].items)
        return calls

    async def _answer(self, calls: Sequence[_Call]) -> None:
        try:
            told = await self._work([item for call in calls for item in call.items])
        except MqgateError as error:
            if len(calls) == 1 or isinstance(error, Busy):
                _fail(calls, error)
            else:
                for call in calls:
                    await self._answer([call])
        except Exception as error:  # noqa: BLE001 - every failure is handed to who asked
            _fail(calls, error)
        else:
            start = 0
            for call in calls:
                end = start + len(call.items)
                # Done already: the one who asked has gone.
                if not call.answer.done():
                    call.answer.set_result(told[start:end])
                start = end


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.answer.done():
            call.answer.set_exception(error)
