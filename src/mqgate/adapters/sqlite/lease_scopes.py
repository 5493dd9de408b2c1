"""The lease scopes of the embedded engine: all of them by name, and the state of those in use in memory."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mqgate.adapters.sqlite import message_lease_rows, queue_lease_rows
from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.lease_writer import Commit, LeaseWriter, Statement
from mqgate.adapters.sqlite.threads import View
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import Lease, Verb
from mqgate.core.leases import message_settle, queue_settle
from mqgate.core.leases.message_state import MessageGrant, MessageScope
from mqgate.core.leases.queue_state import QueueScope
from mqgate.core.tokens import Bucket, GroupTokens

__all__ = ["SQL", "LeaseMemory", "LeaseScopeEntry", "LeaseScopes"]

SQL = queries("lease_scopes")
_DROPS = [sql for name, sql in SQL.items() if name.startswith("drop_all_")]
_SEEN_EVERY_MS = 1_000
# Receipts and ended grants that a scope keeps in memory. Older ones are read when a receipt names them.
_KEPT = 500


class LeaseMemory(NamedTuple):
    """The lease state in memory: the number of scopes, and an estimate of its size."""

    scopes: int
    bytes: int


class LeaseScopeEntry:
    """A lease scope. `scope` is None while its state is not in memory."""

    def __init__(self, row: tuple[Any, ...], tokens: GroupTokens) -> None:
        self.number, self.group, self.client, self.incarnation, self.last_seen, self._epoch, self._in_flight = row
        self.tokens = tokens
        self.scope: QueueScope | MessageScope | None = None
        self.commit: Commit | None = None
        self.used_at = 0
        # Counts unloads, so that state which was read before is not installed after.
        self.version = 0
        self._is_row_stored = True
        self._stored_last_seen = self.last_seen

    def create(self, mode: Mode) -> None:
        """Begin with the state of a new scope."""
        self._is_row_stored = False
        self.scope = self._empty(mode)

    def _empty(self, mode: Mode) -> QueueScope | MessageScope:
        if mode is Mode.MESSAGE:
            return MessageScope(self.group, self.incarnation, self.tokens, self._epoch, self._in_flight)
        return QueueScope(self.group, self.client, self.incarnation, self.tokens)

    def read(self, view: View, mode: Mode) -> QueueScope | MessageScope:
        """Read the stored state. This runs in the thread of a reader."""
        scope = self._empty(mode)
        if isinstance(scope, MessageScope):
            return message_lease_rows.load(view, self.number, scope)
        return queue_lease_rows.load(view, self.number, scope)

    def unload(self) -> None:
        """Drop the state from memory. All of its changes must be stored."""
        if isinstance(self.scope, MessageScope):
            self._epoch, self._in_flight = self.scope.epoch, self.scope.in_flight
        self.scope = None
        self.version += 1

    @property
    def epoch(self) -> int:
        """Return the epoch of the newest grant, in message mode."""
        return self.scope.epoch if isinstance(self.scope, MessageScope) else self._epoch

    def see(self, now_ms: int) -> None:
        """Record a contact of a broadcast client. It is stored to a second."""
        self.last_seen = now_ms
        if now_ms >= self._stored_last_seen + _SEEN_EVERY_MS:
            self._is_row_stored = False

    @property
    def has_changes(self) -> bool:
        return (
            self.tokens.is_changed or not self._is_row_stored or (self.scope is not None and bool(self.scope.changes))
        )

    def take_statements(self) -> Iterator[Statement]:
        """Take the changes as statements."""
        scope = self.scope
        if isinstance(scope, MessageScope):
            if scope.changes.has_counters:
                self._epoch, self._in_flight = scope.epoch, scope.in_flight
                self._is_row_stored = False
            yield from message_lease_rows.statements(self.number, scope)
        elif scope is not None and scope.changes:
            yield from queue_lease_rows.statements(self.number, scope)
        if not self._is_row_stored:
            self._is_row_stored = True
            self._stored_last_seen = self.last_seen
            counters = self._epoch, self._in_flight
            row = self.number, self.group, self.client, self.incarnation, self.last_seen, *counters
            yield SQL["set_scope"], row
        bucket = self.tokens.bucket
        if self.tokens.is_changed and bucket is not None:
            self.tokens.is_changed = False
            yield SQL["set_tokens"], (self.group, bucket.tokens, bucket.at_ms)

    def stored(self) -> None:
        """Drop old receipts from memory after a commit."""
        if self.scope is not None and not self.scope.changes and self.scope.trim(_KEPT):
            self.version += 1

    def unloaded(self, leases: Sequence[Lease]) -> list[Any]:
        """Return the epochs or receipts that must be read before these leases can be settled."""
        own = [lease for lease in leases if lease.client == self.client]
        if isinstance(self.scope, MessageScope):
            return list(message_settle.unloaded(self.scope, own))
        return [] if self.scope is None else list(queue_settle.unloaded(self.scope, own))

    def read_receipts(self, view: View, keys: Sequence[Any]) -> "_Receipts":
        """Read older receipts. This runs in the thread of a reader."""
        if isinstance(self.scope, MessageScope):
            return _Receipts(self.version, message_lease_rows.load_grants(view, self.number, keys), {})
        return _Receipts(self.version, [], queue_lease_rows.load_spent(view, self.number, keys))

    def install(self, receipts: "_Receipts") -> None:
        """Add older receipts to the state."""
        if isinstance(self.scope, MessageScope):
            for grant in receipts.grants:
                if grant.epoch not in self.scope.grants:
                    self.scope.add_grant(grant)
        elif self.scope is not None:
            self.scope.spent = {**receipts.spent, **self.scope.spent}


class _Receipts(NamedTuple):
    """Older receipts of a scope, read at a version of its state."""

    version: int
    grants: list[MessageGrant]
    spent: dict[tuple[str, int], Verb]


class LeaseScopes:
    def __init__(self, engine: Engine, writer: LeaseWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._groups: dict[str, dict[str, LeaseScopeEntry]] | None = None
        self._tokens: dict[str, GroupTokens] = {}
        self._last_number = 0
        writer.on_failure(self._drop_state)

    def _drop_state(self) -> None:
        self._groups = None

    @property
    def loaded(self) -> Iterator[LeaseScopeEntry]:
        """Iterate over the scopes whose state is in memory."""
        groups = self._groups or {}
        return (entry for clients in groups.values() for entry in clients.values() if entry.scope is not None)

    @property
    def memory(self) -> LeaseMemory:
        sizes = [entry.scope.size for entry in self.loaded if entry.scope is not None]
        return LeaseMemory(len(sizes), sum(sizes))

    async def prepare(self, group: Group, client: str = "", leases: Sequence[Lease] = ()) -> None:
        """Load all state that a step needs. The step must follow without another await."""
        names = {""} if group.mode is not Mode.BROADCAST else {client, *(lease.client for lease in leases)}
        read: dict[int, _Receipts] = {}
        while True:
            if self._groups is None:
                await self._load_names()
                continue
            entries = [entry for name in names if (entry := self.find(group.name, name)) is not None]
            without_state = [entry for entry in entries if entry.scope is None]
            if without_state:
                await self.load(without_state[0], group.mode)
                continue
            missing = {entry: keys for entry in entries if (keys := entry.unloaded(leases))} if leases else {}
            if all(entry.number in read and read[entry.number].version == entry.version for entry in missing):
                for entry in missing:
                    entry.install(read[entry.number])
                return
            read = {entry.number: await self._read_receipts(entry, keys) for entry, keys in missing.items()}

    def find(self, group: str, client: str) -> LeaseScopeEntry | None:
        """Return a scope. The names must have been loaded."""
        return None if self._groups is None else self._groups.get(group, {}).get(client)

    def of_group(self, group: str) -> list[LeaseScopeEntry]:
        return [] if self._groups is None else list(self._groups.get(group, {}).values())

    async def entries(self) -> list[LeaseScopeEntry]:
        """Return all scopes."""
        while self._groups is None:
            await self._load_names()
        return [entry for clients in self._groups.values() for entry in clients.values()]

    def create(self, group: Group, client: str, now_ms: int) -> LeaseScopeEntry:
        """Create a scope without queues."""
        assert self._groups is not None, "the names were loaded by `prepare`"  # noqa: S101 - for the type checker
        self._last_number += 1
        row = self._last_number, group.name, client, os.urandom(8).hex(), now_ms, 0, 0
        entry = LeaseScopeEntry(row, self._tokens.setdefault(group.name, GroupTokens()))
        entry.create(group.mode)
        self._groups.setdefault(group.name, {})[client] = entry
        self._writer.add(entry)
        return entry

    def drop(self, entry: LeaseScopeEntry) -> None:
        """Delete a scope and its rows with the next commit."""
        assert self._groups is not None, "an entry was found"  # noqa: S101 - for the type checker
        del self._groups[entry.group][entry.client]
        self._writer.discard(entry)
        self._writer.execute(*((sql, (entry.number,)) for sql in _DROPS))

    def forget(self, group: str) -> None:
        """Delete all scopes and tokens of a group with the next commit."""
        for entry in self.of_group(group):
            self.drop(entry)
        self._tokens.pop(group, None)
        self._writer.execute((SQL["drop_clients"], (group,)), (SQL["drop_tokens"], (group,)))

    def unload_idle(self, since_ms: int) -> None:
        """Drop the state of scopes that were not used since an instant from memory."""
        for entry in list(self.loaded):
            if entry.used_at < since_ms and entry.commit is None and not entry.has_changes:
                entry.unload()

    async def _load_names(self) -> None:
        def job(view: View) -> tuple[list[Any], list[Any], int]:
            return view.all(SQL["scopes"]), view.all(SQL["tokens"]), view.one(SQL["last_scope"])[0]

        rows, tokens, last_number = await self._engine.read(job)
        if self._groups is not None:
            return
        self._last_number = last_number
        self._tokens = {group: GroupTokens(Bucket(count, at)) for group, count, at in tokens}
        self._groups = {}
        for row in rows:
            group, client = row[1:3]
            entry = LeaseScopeEntry(row, self._tokens.setdefault(group, GroupTokens()))
            self._groups.setdefault(group, {})[client] = entry

    async def load(self, entry: LeaseScopeEntry, mode: Mode) -> None:
        """Load the state of a scope."""
        version = entry.version
        scope = await self._engine.read(lambda view: entry.read(view, mode))
        if entry.scope is None and entry.version == version:
            entry.scope = scope

    async def _read_receipts(self, entry: LeaseScopeEntry, keys: Sequence[Any]) -> _Receipts:
        return await self._engine.read(lambda view: entry.read_receipts(view, keys))
