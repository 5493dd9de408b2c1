"""RegistryStore in PostgreSQL: entries as JSON, one version for all of them.

A change is one statement: it raises the version if that is still the one it was decided on, and then changes the entry
and records the act. Gateways that change something at once wait for the version's row; the second finds it raised.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from mqgate.adapters.postgres.database import Database, Transaction, queries
from mqgate.adapters.postgres.text import kept, told
from mqgate.core.entries import ApiKey, Group, Producer, Snapshot, Topic
from mqgate.core.errors import RegistryChanged
from mqgate.ports.registry_store import Act, Entry

__all__ = ["PostgresRegistryStore"]

_SQL = queries("registry_store")
_KINDS: dict[type[Entry], str] = {Topic: "topic", Producer: "producer", Group: "group", ApiKey: "key"}
_NEWEST = 1 << 62


class PostgresRegistryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def version(self) -> int:
        return int((await self._database.read(_SQL["version"]))[0][0])

    async def load(self) -> Snapshot:
        rows = await self._database.read(_SQL["load"])
        found: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS.values()}
        types = {kind: entry_type for entry_type, kind in _KINDS.items()}
        for _, kind, name, entry in rows:
            # A newer release beside us may know kinds that we do not.
            if kind in types:
                found[kind][name] = msgspec.json.decode(entry, type=types[kind])
        return Snapshot(
            version=rows[0][0],
            topics=found["topic"],
            producers=found["producer"],
            groups=found["group"],
            keys=found["key"],
        )

    async def save(self, entry: Entry, act: Act, *, decided_on: int) -> None:
        await self._change("save", entry, act, decided_on)

    async def remove(self, entry: Entry, act: Act, *, decided_on: int) -> None:
        await self._change("remove", entry, act, decided_on)

    async def _change(self, name: str, entry: Entry, act: Act, decided_on: int) -> None:
        values = {
            "kind": _KINDS[type(entry)],
            "name": _name(entry),
            "entry": msgspec.json.encode(entry).decode(),
            "decided_on": decided_on,
            **_columns(act),
        }
        if not await self._database.write(_SQL[name], values):
            raise RegistryChanged("read the registry again and repeat the change")

    async def record(self, act: Act) -> None:
        await self._database.write(_SQL["record"], _columns(act))

    async def acts(self, most: int, before: str | None) -> tuple[Sequence[Act], str | None]:
        values = {"before": int(before) if before else _NEWEST, "most": most + 1}
        rows = await self._database.read(_SQL["acts"], values)
        return [_act(row) for row in rows[:most]], str(rows[most - 1][0]) if len(rows) > most else None

    async def receipt_keys(self, *, overlap_ms: int, lifetime_ms: int) -> dict[int, bytes]:
        overlap, lifetime = timedelta(milliseconds=overlap_ms), timedelta(milliseconds=lifetime_ms)

        async def job(transaction: Transaction) -> dict[int, bytes]:
            # Gateways that start at once wait here for the first one's key.
            await transaction.rows(_SQL["lock_receipt_keys"])
            rows = await transaction.rows(_SQL["receipt_keys"])
            if not rows or rows[-1][2] + lifetime <= rows[-1][3]:
                rows += await transaction.rows(_SQL["add_receipt_key"], {"secret": os.urandom(32)})
            now = rows[-1][3]
            # A key's service ends when its successor is made; it is accepted for the overlap after that.
            while len(rows) > 1 and rows[1][2] + overlap <= now:
                await transaction.rows(_SQL["drop_receipt_key"], {"number": rows.pop(0)[0]})
            return {number: secret for number, secret, _, _ in rows}

        return await self._database.transact(job)


def _name(entry: Entry) -> str:
    return entry.id if isinstance(entry, ApiKey) else entry.name


def _columns(act: Act) -> dict[str, Any]:
    return {
        "at": act.at,
        "actor": kept(act.actor),
        "action": act.action,
        "subject": kept(act.subject),
        "reason": kept(act.reason),
        "details": act.details,
    }


def _act(row: tuple[Any, ...]) -> Act:
    _, at, actor, action, subject, reason, details = row
    return Act(
        at=at,
        actor=str(told(actor)),
        action=action,
        subject=str(told(subject)),
        reason=told(reason),
        details=details,
    )
