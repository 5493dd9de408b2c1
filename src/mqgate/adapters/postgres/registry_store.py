"""RegistryStore in PostgreSQL: entries as JSON, one version for all of them.

A change is one statement: it increments the version if that is still the one that the change was decided on, then
changes the entry and records the audit entry. Concurrent changes wait for the row of the version; the second one finds
it incremented. Every change and every new receipt key sends a notification (see `registry_watch`).

`change_lock` holds an advisory lock, which ends with its connection. That connection is outside the pool, so that
waiting for the lock does not block other operations. The server closes it if the gateway is cut off.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from mqgate.adapters.postgres.database import Database, Transaction, queries
from mqgate.adapters.postgres.text import escape, unescape
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.entries import Account, ApiKey, Group, Producer, Snapshot, Team, Topic
from mqgate.core.errors import RegistryChanged
from mqgate.core.receipt import KeyRotationPolicy, SigningKeys, StoredKey
from mqgate.ports.registry_store import AuditEntry, Entry

__all__ = ["PostgresRegistryStore", "record_audit"]

_SQL = queries("registry_store")
_KINDS: dict[type[Entry], str] = {
    Topic: "topic",
    Producer: "producer",
    Group: "group",
    ApiKey: "key",
    Account: "account",
    Team: "team",
}
_NEWEST = 1 << 62


class PostgresRegistryStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        # Callers of this gateway wait here, without a connection.
        self._local_lock = asyncio.Lock()

    @asynccontextmanager
    async def change_lock(self) -> AsyncIterator[None]:
        async with self._local_lock, self._database.outside_pool() as connection:
            await connection.execute(_SQL["limit_waiting"])
            await connection.execute(_SQL["lock_registry"])
            yield

    async def version(self) -> int:
        return int((await self._database.read(_SQL["version"]))[0][0])

    async def load(self) -> Snapshot:
        rows = await self._database.read(_SQL["load"])
        found: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS.values()}
        types = {kind: entry_type for entry_type, kind in _KINDS.items()}
        for _, kind, name, entry in rows:
            # A gateway of a newer release may have stored other kinds.
            if kind in types:
                found[kind][name] = msgspec.json.decode(entry, type=types[kind])
        return Snapshot(
            version=rows[0][0],
            topics=found["topic"],
            producers=found["producer"],
            groups=found["group"],
            keys=found["key"],
            accounts=found["account"],
            teams=found["team"],
        )

    async def save(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        await self._change("save", entry, audit_entry, decided_on)

    async def remove(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        await self._change("remove", entry, audit_entry, decided_on)

    async def _change(self, name: str, entry: Entry, audit_entry: AuditEntry, decided_on: int) -> None:
        values = {
            "kind": _KINDS[type(entry)],
            "name": _name(entry),
            "entry": msgspec.json.encode(entry).decode(),
            "decided_on": decided_on,
            **_columns(audit_entry),
        }
        if not await self._database.write(_SQL[name], values):
            raise RegistryChanged("read the registry again and repeat the change")

    async def record(self, audit_entry: AuditEntry) -> None:
        await self._database.write(_SQL["record"], _columns(audit_entry))

    async def audit_entries(self, limit: int, before: str | None) -> tuple[Sequence[AuditEntry], str | None]:
        (newest,) = (_NEWEST,) if before is None else parse_cursor(before, MAX_ROW)
        values = {"before": newest, "limit": limit + 1}
        rows = await self._database.read(_SQL["audit_entries"], values)
        return [_audit_entry(row) for row in rows[:limit]], str(rows[limit - 1][0]) if len(rows) > limit else None

    async def receipt_keys(self, policy: KeyRotationPolicy) -> SigningKeys:
        now, keys = _keys(await self._database.read(_SQL["receipt_keys"]))
        if not policy.is_one_due(keys, now) and not policy.retired(keys, now):
            return policy.signing(keys, now)

        async def job(transaction: Transaction) -> SigningKeys:
            # Concurrent gateways wait here for the key of the first one.
            await transaction.rows(_SQL["lock_receipt_keys"])
            now, keys = _keys(await transaction.rows(_SQL["receipt_keys"]))
            if policy.is_one_due(keys, now):
                added = await transaction.rows(_SQL["add_receipt_key"], {"secret": os.urandom(32)})
                keys.append(StoredKey(*added[0][:3]))
            for key in policy.retired(keys, now):
                await transaction.rows(_SQL["drop_receipt_key"], {"number": key.number})
                keys.remove(key)
            return policy.signing(keys, now)

        return await self._database.transact(job)


async def record_audit(transaction: Transaction, audit_entry: AuditEntry) -> None:
    """Record an audit entry in the transaction of the change."""
    await transaction.rows(_SQL["record"], _columns(audit_entry))


def _name(entry: Entry) -> str:
    return entry.id if isinstance(entry, ApiKey) else entry.name


def _keys(rows: Sequence[tuple[Any, ...]]) -> tuple[datetime, list[StoredKey]]:
    """Return the clock, which every row contains, and the keys."""
    return rows[0][0], [StoredKey(*key) for _, *key in rows if key[0] is not None]


def _columns(audit_entry: AuditEntry) -> dict[str, Any]:
    return {
        "at": audit_entry.at,
        "actor": escape(audit_entry.actor),
        "action": audit_entry.action,
        "subject": escape(audit_entry.subject),
        "reason": escape(audit_entry.reason),
        "details": audit_entry.details,
    }


def _audit_entry(row: tuple[Any, ...]) -> AuditEntry:
    _, at, actor, action, subject, reason, details = row
    return AuditEntry(
        at=at,
        actor=str(unescape(actor)),
        action=action,
        subject=str(unescape(subject)),
        reason=unescape(reason),
        details=details,
    )
