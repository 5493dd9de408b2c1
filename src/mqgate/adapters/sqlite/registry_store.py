"""Registry, audit entries and receipt keys in SQLite. Entries are stored as JSON and share one version."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.entries import Account, ApiKey, Group, Producer, Snapshot, Team, Topic
from mqgate.core.errors import RegistryChanged
from mqgate.core.message import instant, milliseconds
from mqgate.core.receipt import KeyRotationPolicy, SigningKeys, StoredKey
from mqgate.ports.registry_store import AuditEntry, Entry

_SQL = queries("registry_store")
_KINDS: dict[type[Entry], str] = {
    Topic: "topic",
    Producer: "producer",
    Group: "group",
    ApiKey: "key",
    Account: "account",
    Team: "team",
}
_MAX_ID = 1 << 62


class SqliteRegistryStore:
    """RegistryStore on the embedded engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._change_lock = asyncio.Lock()

    @asynccontextmanager
    async def change_lock(self) -> AsyncIterator[None]:
        async with self._change_lock:
            yield

    async def version(self) -> int:
        return int(await self._engine.read(lambda view: view.one(_SQL["version"])[0]))

    async def load(self) -> Snapshot:
        def job(view: View) -> tuple[int, list[Any]]:
            # Both statements must read the same commit.
            view.execute("BEGIN")
            try:
                return view.one(_SQL["version"])[0], view.all(_SQL["entries"])
            finally:
                view.execute("COMMIT")

        version, rows = await self._engine.read(job)
        found: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS.values()}
        types = {kind: entry_type for entry_type, kind in _KINDS.items()}
        for kind, name, entry in rows:
            found[kind][name] = msgspec.json.decode(entry, type=types[kind])
        return Snapshot(
            version=version,
            topics=found["topic"],
            producers=found["producer"],
            groups=found["group"],
            keys=found["key"],
            accounts=found["account"],
            teams=found["team"],
        )

    async def save(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        def job(tx: Transaction) -> None:
            _raise_version(tx, decided_on)
            tx.execute(_SQL["save"], (_KINDS[type(entry)], _name(entry), msgspec.json.encode(entry)))
            record_audit(tx, audit_entry)

        await self._engine.write(job)

    async def remove(self, entry: Entry, audit_entry: AuditEntry, *, decided_on: int) -> None:
        def job(tx: Transaction) -> None:
            _raise_version(tx, decided_on)
            tx.execute(_SQL["remove"], (_KINDS[type(entry)], _name(entry)))
            record_audit(tx, audit_entry)

        await self._engine.write(job)

    async def record(self, audit_entry: AuditEntry) -> None:
        await self._engine.write(lambda tx: record_audit(tx, audit_entry))

    async def audit_entries(self, limit: int, before: str | None) -> tuple[Sequence[AuditEntry], str | None]:
        (before_id,) = (_MAX_ID,) if before is None else parse_cursor(before, MAX_ROW)
        rows = await self._engine.read(lambda view: view.all(_SQL["audit_entries"], (before_id, limit + 1)))
        found = [
            AuditEntry(at=instant(at), actor=actor, action=action, subject=subject, reason=reason, details=details)
            for _, at, actor, action, subject, reason, details in rows[:limit]
        ]
        return found, str(rows[limit - 1][0]) if len(rows) > limit else None

    async def receipt_keys(self, policy: KeyRotationPolicy) -> SigningKeys:
        def job(tx: Transaction) -> SigningKeys:
            now = instant(tx.now_ms)
            keys = [StoredKey(number, secret, instant(made)) for number, secret, made in tx.all(_SQL["receipt_keys"])]
            if policy.is_one_due(keys, now):
                secret = os.urandom(32)
                keys.append(StoredKey(tx.one(_SQL["add_receipt_key"], (secret, tx.now_ms))[0], secret, now))
            for key in policy.retired(keys, now):
                tx.execute(_SQL["drop_receipt_key"], (key.number,))
                keys.remove(key)
            return policy.signing(keys, now)

        return await self._engine.write(job)


def _name(entry: Entry) -> str:
    return entry.id if isinstance(entry, ApiKey) else entry.name


def _raise_version(tx: Transaction, decided_on: int) -> None:
    if tx.one(_SQL["version"])[0] != decided_on:
        raise RegistryChanged("The registry was changed by another request. Read it again and repeat the change.")
    tx.execute(_SQL["raise_version"])


def record_audit(tx: Transaction, audit_entry: AuditEntry) -> None:
    """Record an audit entry in the transaction of the change."""
    values = (
        milliseconds(audit_entry.at),
        audit_entry.actor,
        audit_entry.action,
        audit_entry.subject,
        audit_entry.reason,
        audit_entry.details,
    )
    tx.execute(_SQL["record"], values)
