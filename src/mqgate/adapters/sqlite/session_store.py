"""SessionStore on the embedded engine."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.message import instant, milliseconds
from mqgate.core.sign_in import Attempts, Slot
from mqgate.ports.session_store import Session

__all__ = ["SqliteSessionStore"]

_SQL = queries("session_store")
_NO_WAIT = timedelta(0)


class SqliteSessionStore:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, session: Session, *, keep: int) -> None:
        created_at, seen_at = milliseconds(session.created_at), milliseconds(session.seen_at)
        row = (session.digest, session.account, created_at, seen_at, session.address, session.client)

        def job(tx: Transaction) -> None:
            tx.execute(_SQL["add"], row)
            tx.execute(_SQL["trim"], (session.account, keep))

        await self._engine.write(job)

    async def find(self, digest: str) -> Session | None:
        row = await self._engine.read(lambda view: view.one(_SQL["find"], (digest,)))
        return None if row is None else _session(row)

    async def touch(self, digest: str, at: datetime) -> None:
        await self._engine.write(lambda tx: tx.execute(_SQL["touch"], (digest, milliseconds(at))))

    async def remove(self, account: str, *, digest: str | None = None, other_than: str | None = None) -> int:
        def job(tx: Transaction) -> int:
            tx.execute(_SQL["remove"], (account, digest, other_than))
            return int(tx.one("SELECT changes()")[0])

        return await self._engine.write(job)

    async def of(self, account: str) -> Sequence[Session]:
        return [_session(row) for row in await self._engine.read(lambda view: view.all(_SQL["of"], (account,)))]

    async def attempt(self, slots: Sequence[Slot], now: datetime) -> timedelta:
        def job(tx: Transaction) -> timedelta:
            found = [(slot, _attempts(tx.one(_SQL["attempts"], (slot.name,)), now)) for slot in slots]
            wait = max(attempts.wait(slot.limit, now) for slot, attempts in found)
            if wait > _NO_WAIT:
                return wait
            for slot, attempts in found:
                counted = attempts.next(slot.limit, now)
                tx.execute(_SQL["count"], (slot.name, counted.failures, milliseconds(counted.at)))
            return _NO_WAIT

        return await self._engine.write(job)

    async def succeed(self, *, cleared: Slot, undone: Slot) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["clear"], (cleared.name,))
            tx.execute(_SQL["undo"], (undone.name,))

        await self._engine.write(job)

    async def tidy(self, *, created_before: datetime, seen_before: datetime, attempts_before: datetime) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["tidy_sessions"], (milliseconds(created_before), milliseconds(seen_before)))
            tx.execute(_SQL["tidy_attempts"], (milliseconds(attempts_before),))

        await self._engine.write(job)


def _session(row: Any) -> Session:
    digest, account, created_at, seen_at, address, client = row
    return Session(
        digest=digest,
        account=account,
        created_at=instant(created_at),
        seen_at=instant(seen_at),
        address=address,
        client=client,
    )


def _attempts(row: Any, now: datetime) -> Attempts:
    return Attempts(0, now) if row is None else Attempts(row[0], instant(row[1]))
