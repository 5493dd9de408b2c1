"""Writes the changes of lease scopes with the next group commit, and lets the responses wait for it.

One commit is in flight at a time. Changes that are decided meanwhile are merged into the next one, so a row that
changed several times is written once. If a commit fails, all lease state in memory is dropped, and every response that
waits for that commit or for the next one fails: it was decided on state that was not stored.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.threads import Transaction

__all__ = ["Changing", "Commit", "LeaseWriter", "Statement"]

Statement = tuple[str, tuple[Any, ...]]


class Commit:
    """Changes that are stored together, and the responses that wait for them."""

    def __init__(self) -> None:
        self.changing: dict[int, Changing] = {}
        self.statements: list[Statement] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.is_durable = False

    def __bool__(self) -> bool:
        return bool(self.changing or self.statements or self.waiters)


class Changing(Protocol):
    """Lease state whose changes are written. `commit` is the one that its newest changes wait for."""

    number: int
    commit: Commit | None

    def take_statements(self) -> Iterable[Statement]: ...

    def stored(self) -> None: ...


class LeaseWriter:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next = Commit()
        self._in_flight: Commit | None = None
        self._is_scheduled = False
        self._drop_state: Callable[[], None] | None = None

    def on_failure(self, drop_state: Callable[[], None]) -> None:
        """Call a function when a commit failed, before any response fails."""
        self._drop_state = drop_state

    def add(self, changing: Changing) -> None:
        """Write the changes of lease state with the next commit."""
        changing.commit = self._next
        self._next.changing[changing.number] = changing
        self._schedule()

    def execute(self, *statements: Statement) -> None:
        """Run further statements with the next commit, before the changes."""
        self._next.statements += statements
        self._schedule()

    def discard(self, changing: Changing) -> None:
        """Forget the changes of dropped lease state."""
        self._next.changing.pop(changing.number, None)

    async def stored(self, *commits: Commit | None, is_durable: bool = False) -> None:
        """Return when these commits have succeeded, by default the next one."""
        # If the one in flight fails, the next one fails as well.
        in_flight = self._in_flight
        commit = in_flight if in_flight is not None and commits == (in_flight,) else self._next
        commit.is_durable |= is_durable
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        commit.waiters.append(waiter)
        self._schedule()
        await waiter

    def _schedule(self) -> None:
        """Begin a commit after the callbacks of this turn of the event loop, so that their changes share it."""
        if not self._is_scheduled and self._in_flight is None:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        commit, self._next = self._next, Commit()
        statements = commit.statements
        for changing in commit.changing.values():
            statements += changing.take_statements()
        self._in_flight = commit
        if not statements:
            self._succeed(commit)
            return

        def job(tx: Transaction) -> None:
            execute = tx.execute
            for sql, values in statements:
                execute(sql, values)

        try:
            self._engine.post(
                job,
                lambda _: self._succeed(commit),
                lambda error: self._fail(commit, error),
                is_durable=commit.is_durable,
            )
        except Exception as error:  # noqa: BLE001 - raised in the callers
            self._fail(commit, error)

    def _succeed(self, commit: Commit) -> None:
        self._in_flight = None
        for changing in commit.changing.values():
            if changing.commit is commit:
                changing.commit = None
                changing.stored()
        _resolve(commit, None)
        if self._next:
            self._schedule()

    def _fail(self, commit: Commit, error: BaseException) -> None:
        self._in_flight = None
        following, self._next = self._next, Commit()
        if self._drop_state is not None:
            self._drop_state()
        _resolve(commit, error)
        _resolve(following, error)


def _resolve(commit: Commit, error: BaseException | None) -> None:
    for waiter in commit.waiters:
        # The caller was cancelled. The commit stays valid.
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
