"""SessionStore in PostgreSQL. Attempts lock their slots in the order of their names, so that they cannot deadlock."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from mqgate.adapters.postgres.database import Database, Transaction, queries
from mqgate.core.sign_in import Attempts, Slot
from mqgate.ports.session_store import Session

__all__ = ["PostgresSessionStore"]

_SQL = queries("session_store")
_NO_WAIT = timedelta(0)


class PostgresSessionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: Session, *, keep: int) -> None:
        values = {
            "digest": session.digest,
            "account": session.account,
            "created_at": session.created_at,
            "seen_at": session.seen_at,
            "address": session.address,
            "client": session.client,
        }

        async def job(transaction: Transaction) -> None:
            await transaction.rows(_SQL["add"], values)
            await transaction.rows(_SQL["trim"], {"account": session.account, "keep": keep})

        await self._database.transact(job)

    async def find(self, digest: str) -> Session | None:
        rows = await self._database.read(_SQL["find"], {"digest": digest})
        return _session(rows[0]) if rows else None

    async def touch(self, digest: str, at: datetime) -> None:
        await self._database.write(_SQL["touch"], {"digest": digest, "at": at}, is_repeatable=True)

    async def remove(self, account: str, *, digest: str | None = None, other_than: str | None = None) -> int:
        values = {"account": account, "digest": digest, "other_than": other_than}
        return len(await self._database.write(_SQL["remove"], values, is_repeatable=True))

    async def of(self, account: str) -> Sequence[Session]:
        return [_session(row) for row in await self._database.read(_SQL["of"], {"account": account})]

    async def attempt(self, slots: Sequence[Slot], now: datetime) -> timedelta:
        names = [slot.name for slot in slots]

        async def job(transaction: Transaction) -> timedelta:
            await transaction.rows(_SQL["create_slots"], {"slots": names, "began": now})
            rows = await transaction.rows(_SQL["attempts"], {"slots": names})
            found = {name: Attempts(count, at) for name, count, at in rows}
            wait = max(found[slot.name].wait(slot.limit, now) for slot in slots)
            if wait > _NO_WAIT:
                return wait
            for slot in slots:
                counted = found[slot.name].next(slot.limit, now)
                values = {"slot": slot.name, "count": counted.failures, "at": counted.at}
                await transaction.rows(_SQL["count"], values)
            return _NO_WAIT

        return await self._database.transact(job)

    async def succeed(self, *, cleared: Slot, undone: Slot) -> None:
        await self._database.write(_SQL["clear"], {"slot": cleared.name}, is_repeatable=True)
        await self._database.write(_SQL["undo"], {"slot": undone.name}, is_repeatable=True)

    async def tidy(self, *, created_before: datetime, seen_before: datetime, attempts_before: datetime) -> None:
        values = {"created_before": created_before, "seen_before": seen_before}
        await self._database.write(_SQL["tidy_sessions"], values, is_repeatable=True)
        await self._database.write(_SQL["tidy_attempts"], {"attempts_before": attempts_before}, is_repeatable=True)


def _session(row: tuple[Any, ...]) -> Session:
    digest, account, created_at, seen_at, address, client = row
    return Session(
        digest=digest, account=account, created_at=created_at, seen_at=seen_at, address=address, client=client
    )
