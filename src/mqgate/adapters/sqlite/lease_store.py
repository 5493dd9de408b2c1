"""LeaseStore on the embedded engine: decisions in memory, by the rules of core/leases, in the thread of the event loop.

The state of a scope is loaded at its first use. A step changes it at once, and the response waits until the changes are
committed; so does a step that changed nothing but was decided on changes that are not committed yet.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from mqgate.adapters.sqlite import message_lease_rows, queue_lease_rows
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_scopes import SQL, LeaseMemory, LeaseScopeEntry, LeaseScopes
from mqgate.adapters.sqlite.lease_writer import LeaseWriter
from mqgate.adapters.sqlite.threads import Transaction, View
from mqgate.core.acked_range import AckedRange
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import TooManyClients
from mqgate.core.lease import (
    MEMORY,
    MIN_REMEMBERED,
    UNKNOWN,
    AcquireRequest,
    AcquireResult,
    ClientInfo,
    ExhaustedMessage,
    Lease,
    Position,
    PullReport,
    QueueBounds,
    SeekResult,
    Settlement,
    SettlementOutcome,
    SettlementResult,
)
from mqgate.core.leases import message, queue
from mqgate.core.leases.message_state import MessageScope
from mqgate.core.leases.queue_state import QueueScope
from mqgate.core.message import instant

_MS = timedelta(milliseconds=1)
_FORGOTTEN_AT_ONCE = 1_000
_SEEN_EVERY_MS = 1_000
_SEEN_REMEMBERED = 10_000
_SEEN_CLIENTS_KEPT = timedelta(days=1)
_IDLE = timedelta(minutes=10)
_GONE = SettlementResult(SettlementOutcome.GONE)


class SqliteLeaseStore:
    def __init__(self, engine: Engine, *, max_clients: int = 1_000, writer: LeaseWriter | None = None) -> None:
        self._engine = engine
        self._writer = writer or LeaseWriter(engine)
        self._scopes = LeaseScopes(engine, self._writer)
        self._max_clients = max_clients
        self._seen: dict[tuple[str, str, str], int] = {}

    @property
    def memory(self) -> LeaseMemory:
        """Return how much lease state is in memory."""
        return self._scopes.memory

    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        await self._scopes.prepare(group, client)
        now_ms = self._now_ms()
        entry = self._find(group, client, now_ms)
        is_new = entry is None
        if entry is None:
            if group.mode is Mode.BROADCAST:
                self._make_room(group, now_ms)
            entry = self._scopes.create(group, client, now_ms)
        assert entry.scope is not None, "the state was loaded"  # noqa: S101 - for the type checker
        for name, start in starts.items():
            entry.scope.open(name, start, bounds[name], now_ms)
        await self._stored(entry, is_durable=True)
        return is_new

    def _make_room(self, group: Group, now_ms: int) -> None:
        entries = self._scopes.of_group(group.name)
        idle = [entry for entry in entries if entry.client and _is_idle(entry, group, now_ms)]
        for entry in idle:
            self._scopes.drop(entry)
        if len(entries) - len(idle) >= self._max_clients:
            raise TooManyClients(
                f"group {group.name} has {self._max_clients} clients: reuse a clientId, or wait until idle ones "
                "are forgotten",
                limit=self._max_clients,
            )

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        group, carried = request.group, request.settlements
        await self._scopes.prepare(group, request.client, _leases(carried))
        now_ms = self._now_ms()
        entry = self._find(group, request.client, now_ms, is_contact=True)
        if entry is None:
            return UNKNOWN
        scope = entry.scope
        others: list[LeaseScopeEntry] = []
        if isinstance(scope, MessageScope):
            message.check_attempt(scope, request, now_ms)
            result = message.acquire(scope, request, now_ms)
        else:
            assert scope is not None, "the state was loaded"  # noqa: S101 - for the type checker
            queue.check_attempt(scope, request, now_ms)
            settled, others = self._settle_queues(group, carried, now_ms)
            result = queue.acquire(scope, request, settled, now_ms)
        self._see(request, now_ms)
        await self._stored(entry, *others)
        return result

    def _see(self, request: AcquireRequest, now_ms: int) -> None:
        """Record who polled when, to a second."""
        client = request.group.name, request.polled_by, request.address
        seen_at = self._seen.get(client)
        if seen_at is not None and now_ms - seen_at < _SEEN_EVERY_MS:
            return
        self._writer.execute((SQL["see_client"], (*client, now_ms)))
        if seen_at is None:
            # Callers choose the names, so no more are kept than are listed. Half of them at once: it takes long.
            self._writer.execute((SQL["trim_clients"], (request.group.name, self._max_clients)))
            if len(self._seen) > _SEEN_REMEMBERED:
                self._seen.clear()
        self._seen[client] = now_ms

    async def report_pull(self, group: Group, reports: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        await self._scopes.prepare(group, "", [report.grant.lease for report in reports])
        now_ms = self._now_ms()
        if group.mode is Mode.MESSAGE:
            entry = self._find(group, "", now_ms)
            if entry is None or not isinstance(entry.scope, MessageScope):
                return [frozenset() for _ in reports]
            kept = message.report_pulls(entry.scope, group, reports, now_ms)
            await self._stored(entry)
            return kept
        kept = []
        changed = []
        for report in reports:
            entry = self._find(group, report.grant.lease.client, now_ms, is_contact=True)
            if entry is None or not isinstance(entry.scope, QueueScope):
                kept.append(frozenset())
                continue
            kept.append(queue.report_pull(entry.scope, group, report, now_ms))
            changed.append(entry)
        await self._stored(*changed)
        return kept

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        await self._scopes.prepare(group, "", _leases(settlements))
        now_ms = self._now_ms()
        if group.mode is not Mode.MESSAGE:
            results, changed = self._settle_queues(group, settlements, now_ms)
            await self._stored(*changed)
            return results
        found = self._find(group, "", now_ms)
        if found is None or not isinstance(found.scope, MessageScope):
            return [_GONE] * len(settlements)
        results = message.settle(found.scope, group, settlements, now_ms)
        await self._stored(found)
        return results

    def _settle_queues(
        self, group: Group, settlements: Sequence[Settlement], now_ms: int
    ) -> tuple[list[SettlementResult], list[LeaseScopeEntry]]:
        """Apply settlements of queue or broadcast mode, each in the scope of its client."""
        results = []
        changed: list[LeaseScopeEntry] = []
        for settlement in settlements:
            entry = self._find(group, settlement.lease.client, now_ms, is_contact=True)
            if entry is None or not isinstance(entry.scope, QueueScope):
                results.append(_GONE)
                continue
            results.append(queue.settle(entry.scope, group, settlement, now_ms))
            if entry not in changed:
                changed.append(entry)
        return results, changed

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        client = exhausted.lease.client
        await self._scopes.prepare(group, client)
        now_ms = self._now_ms()
        entry = self._find(group, client, now_ms)
        if entry is None:
            return False
        if isinstance(entry.scope, MessageScope):
            is_settled = message.settle_dead(entry.scope, group, exhausted, now_ms, is_expired=is_expired)
        else:
            assert entry.scope is not None, "the state was loaded"  # noqa: S101 - for the type checker
            is_settled = queue.settle_dead(entry.scope, exhausted, now_ms, is_expired=is_expired)
        await self._stored(entry, is_durable=True)
        return is_settled

    async def seek(
        self,
        group: Group,
        client: str,
        targets: Mapping[str, int],
        *,
        bounds: Mapping[str, QueueBounds] = MappingProxyType({}),
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
        is_dry_run: bool,
    ) -> Sequence[SeekResult] | None:
        await self._scopes.prepare(group, client)
        now_ms = self._now_ms()
        entry = self._find(group, client, now_ms)
        if entry is None:
            return None
        if isinstance(entry.scope, MessageScope):
            moves = message.seek(entry.scope, targets, bounds, now_ms, is_dry_run=is_dry_run)
        else:
            assert entry.scope is not None, "the state was loaded"  # noqa: S101 - for the type checker
            moves = queue.seek(entry.scope, targets, bounds, last_append_ms, now_ms, is_dry_run=is_dry_run)
        await self._stored(entry, is_durable=True)
        return moves

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        await self._scopes.prepare(group, client)
        now_ms = self._now_ms()
        entry = self._find(group, client, now_ms)
        if entry is None:
            return None
        if isinstance(entry.scope, MessageScope):
            found = message.positions(entry.scope, group, bounds, now_ms)
        else:
            assert entry.scope is not None, "the state was loaded"  # noqa: S101 - for the type checker
            found = queue.positions(entry.scope, group, bounds, last_append_ms, now_ms)
        await self._stored(entry)
        return found

    async def committed(self, group: str) -> Mapping[str, int] | None:
        entries = await self._scopes.entries()
        entry = self._scopes.find(group, "")
        if entry is None or not entries:
            return None
        await self._writer.stored()
        return dict(await self._engine.read(lambda view: view.all(SQL["committed"], (entry.number,))))

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        await self._scopes.entries()
        await self._writer.stored()
        now_ms = self._now_ms()

        def job(view: View) -> list[ClientInfo]:
            holds: dict[str, set[str]] = {}
            for client, name, last in view.all(SQL["held_queues"], (group, now_ms)):
                holds.setdefault(client or last, set()).add(name)
            for client, name in message_lease_rows.holders(view, group, now_ms):
                holds.setdefault(client, set()).add(name)
            return [
                ClientInfo(name, address, instant(first), instant(last), sorted(holds.get(name, ())))
                for name, address, first, last in view.all(SQL["clients"], (group, self._max_clients))
            ]

        return await self._engine.read(job)

    async def forget(self, group: str) -> None:
        await self._scopes.entries()
        self._scopes.forget(group)
        self._seen.clear()
        await self._writer.stored(is_durable=True)

    async def tidy(self) -> None:
        """Forget spent receipts that are old enough, and clients not seen for a day; unload idle scopes."""
        now_ms = self._now_ms()
        while await self._forget_settled(now_ms - MEMORY // _MS):
            pass
        self._scopes.unload_idle(now_ms - _IDLE // _MS)
        self._writer.execute((SQL["forget_clients"], (now_ms - _SEEN_CLIENTS_KEPT // _MS,)))
        await self._writer.stored()

    async def _forget_settled(self, before_ms: int) -> int:
        entries = await self._scopes.entries()
        # Counters and receipts are read from their rows.
        await self._writer.stored()

        def job(tx: Transaction) -> list[tuple[LeaseScopeEntry, list[int], list[tuple[int, str, int]]]]:
            limits = MIN_REMEMBERED, before_ms, _FORGOTTEN_AT_ONCE
            return [
                (
                    entry,
                    message_lease_rows.forget_grants(tx, entry.number, *limits),
                    queue_lease_rows.forgettable(tx, entry.number, *limits),
                )
                for entry in entries
            ]

        forgotten = 0
        for entry, epochs, spent in await self._engine.step(job):
            if spent and entry.scope is None:
                await self._scopes.load(entry, Mode.QUEUE)
            if isinstance(entry.scope, MessageScope):
                entry.scope.forget(epochs)
            elif entry.scope is not None and self._scopes.find(entry.group, entry.client) is entry:
                entry.scope.forget(spent)
                await self._stored(entry)
            forgotten += len(epochs) + len(spent)
        return forgotten

    def _now_ms(self) -> int:
        return self._engine.clock.now_ms()

    def _find(self, group: Group, client: str, now_ms: int, *, is_contact: bool = False) -> LeaseScopeEntry | None:
        """Return a scope, unless it is that of a broadcast client that was idle for too long.

        A contact of the client itself extends its time; other calls do not.
        """
        entry = self._scopes.find(group.name, client)
        if entry is None:
            return None
        entry.used_at = now_ms
        if group.mode is Mode.BROADCAST:
            if _is_idle(entry, group, now_ms):
                self._scopes.drop(entry)
                return None
            if is_contact:
                entry.see(now_ms)
        return entry

    async def _stored(self, *entries: LeaseScopeEntry, is_durable: bool = False) -> None:
        """Return when everything that a step was decided on is committed."""
        for entry in entries:
            if entry.has_changes:
                self._writer.add(entry)
        commits = {entry.commit for entry in entries} - {None}
        if commits:
            await self._writer.stored(*commits, is_durable=is_durable)


def _is_idle(entry: LeaseScopeEntry, group: Group, now_ms: int) -> bool:
    return bool(entry.last_seen + group.client_ttl // _MS <= now_ms)


def _leases(settlements: Sequence[Settlement]) -> Sequence[Lease]:
    if isinstance(settlements, AckedRange):
        return (settlements.lease,)
    return [settlement.lease for settlement in settlements]
