"""LeaseStore on the embedded engine: every method is one writer's transaction.

Queue and broadcast mode live in queue_leases, message mode in message_leases; both hang on a scope.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from mqgate.adapters.sqlite import message_leases, queue_leases
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_scope import SQL, drop, find, scope_of
from mqgate.adapters.sqlite.threads import Transaction
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
    Position,
    PullReport,
    QueueBounds,
    SeekResult,
    Settlement,
    SettlementOutcome,
    SettlementResult,
)
from mqgate.core.message import instant

_MS = timedelta(milliseconds=1)
_FORGOTTEN_AT_ONCE = 1_000
_SEEN_EVERY_MS = 1_000
_SEEN_REMEMBERED = 10_000
_SEEN_CLIENTS_KEPT = timedelta(days=1)


class SqliteLeaseStore:
    def __init__(self, engine: Engine, *, max_clients: int = 1_000) -> None:
        self._engine = engine
        self._max_clients = max_clients
        self._seen: dict[tuple[str, str, str], int] = {}

    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        def job(tx: Transaction) -> bool:
            steps = message_leases if group.mode is Mode.MESSAGE else queue_leases
            known = scope_of(tx, group, client)
            if known is not None:
                steps.open_queues(tx, known.number, starts, bounds)
                return False
            if group.mode is Mode.BROADCAST:
                self._make_room(tx, group)
            scope = tx.one(SQL["add_scope"], (group.name, client, os.urandom(8).hex(), tx.now_ms))[0]
            steps.open_queues(tx, scope, starts, bounds)
            return True

        return await self._engine.write(job)

    def _make_room(self, tx: Transaction, group: Group) -> None:
        idle_since = tx.now_ms - group.client_ttl // _MS
        for (idle,) in tx.all(SQL["idle_scopes"], (group.name, idle_since)):
            drop(tx, idle)
        if tx.one(SQL["count_scopes"], (group.name,))[0] >= self._max_clients:
            raise TooManyClients(
                f"group {group.name} has {self._max_clients} clients: reuse a clientId, or wait until idle ones "
                "are forgotten",
                limit=self._max_clients,
            )

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        seen = (request.group.name, request.polled_by, request.address)

        def job(tx: Transaction) -> tuple[AcquireResult, int]:
            scope = scope_of(tx, request.group, request.client, is_contact=True)
            if scope is None:
                return UNKNOWN, 0
            # Who polled when is good to a second, so that a busy client costs one more write a second.
            seen_at = self._seen.get(seen, -_SEEN_EVERY_MS)
            if tx.now_ms - seen_at >= _SEEN_EVERY_MS:
                seen_at = tx.now_ms
                tx.execute(SQL["see_client"], (*seen, seen_at))
                if seen not in self._seen:
                    self._trim_clients(tx, request.group.name)
            steps = message_leases if request.group.mode is Mode.MESSAGE else queue_leases
            return steps.acquire(tx, scope, request), seen_at

        acquired, seen_at = await self._engine.step(job)
        # Not before it is written: a receive that is refused undoes all of its step.
        if acquired.state_exists:
            if len(self._seen) > _SEEN_REMEMBERED:
                self._seen.clear()
            self._seen[seen] = seen_at
        return acquired

    def _trim_clients(self, tx: Transaction, group: str) -> None:
        """Keep no more names than `clients` lists: callers choose them. Half of them at once, because it takes long."""
        if tx.one(SQL["count_clients"], (group,))[0] > 2 * self._max_clients:
            tx.execute(SQL["trim_clients"], (group, self._max_clients))

    async def report_pull(self, group: Group, reports: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        def job(tx: Transaction) -> list[frozenset[int]]:
            if group.mode is not Mode.MESSAGE:
                return [queue_leases.place(tx, group, each) for each in reports]
            scope = scope_of(tx, group, "")
            if scope is None:
                return [frozenset() for _ in reports]
            return message_leases.place(tx, scope, group, reports)

        return await self._engine.step(job)

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        def job(tx: Transaction) -> list[SettlementResult]:
            if group.mode is not Mode.MESSAGE:
                return [queue_leases.settle(tx, group, each) for each in settlements]
            scope = scope_of(tx, group, "")
            if scope is None:
                return [SettlementResult(SettlementOutcome.GONE) for _ in settlements]
            return message_leases.settle(tx, scope, group, settlements)

        return await self._engine.step(job)

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        def job(tx: Transaction) -> bool:
            if group.mode is not Mode.MESSAGE:
                return queue_leases.settle_dead(tx, group, exhausted, is_expired=is_expired)
            scope = scope_of(tx, group, "")
            return scope is not None and message_leases.settle_dead(tx, scope, group, exhausted, is_expired=is_expired)

        return await self._engine.write(job)

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
        def job(tx: Transaction) -> list[SeekResult] | None:
            scope = scope_of(tx, group, client)
            if scope is None:
                return None
            if group.mode is Mode.MESSAGE:
                return message_leases.seek(tx, scope, group, targets, bounds, is_dry_run=is_dry_run)
            return queue_leases.seek(tx, scope, targets, bounds, last_append_ms, is_dry_run=is_dry_run)

        return await self._engine.write(job)

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        def job(tx: Transaction) -> tuple[list[Position], list[ExhaustedMessage]] | None:
            scope = scope_of(tx, group, client)
            if scope is None:
                return None
            if group.mode is Mode.MESSAGE:
                return message_leases.positions(tx, scope, group, bounds)
            return queue_leases.positions(tx, scope, group, bounds, last_append_ms)

        return await self._engine.write(job)

    async def committed(self, group: str) -> Mapping[str, int] | None:
        def job(tx: Transaction) -> dict[str, int] | None:
            scope = find(tx, group, "")
            return None if scope is None else dict(tx.all(SQL["committed"], (scope.number,)))

        return await self._engine.write(job)

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        def job(tx: Transaction) -> list[ClientInfo]:
            holds: dict[str, list[str]] = {}
            for client, queue, last in tx.all(SQL["held_queues"], (group, tx.now_ms)):
                holds.setdefault(client or last, []).append(queue)
            for (scope,) in tx.all(SQL["scopes_of_group"], (group,)):
                for client, queue in message_leases.holders(tx, scope):
                    holds.setdefault(client, []).append(queue)
            return [
                ClientInfo(name, address, instant(first), instant(last), sorted(set(holds.get(name, ()))))
                for name, address, first, last in tx.all(SQL["clients"], (group, self._max_clients))
            ]

        return await self._engine.write(job)

    async def forget(self, group: str) -> None:
        def job(tx: Transaction) -> None:
            for (scope,) in tx.all(SQL["scopes_of_group"], (group,)):
                drop(tx, scope)
            tx.execute(SQL["drop_clients"], (group,))
            self._seen.clear()
            tx.execute(SQL["drop_tokens"], (group,))

        await self._engine.write(job)

    async def tidy(self) -> None:
        """Forget spent receipts that are old enough, and clients not seen for a day."""
        while await self._engine.write(_forget_settled):
            pass

        def forget_clients(tx: Transaction) -> None:
            tx.execute(SQL["forget_clients"], (tx.now_ms - _SEEN_CLIENTS_KEPT // _MS,))

        await self._engine.write(forget_clients)


def _forget_settled(tx: Transaction) -> int:
    before = tx.now_ms - MEMORY // _MS
    forgotten = 0
    for scope, *_ in tx.all(SQL["all_scopes"]):
        forgotten += queue_leases.forget(tx, scope, MIN_REMEMBERED, before, _FORGOTTEN_AT_ONCE)
        forgotten += message_leases.forget(tx, scope, MIN_REMEMBERED, before, _FORGOTTEN_AT_ONCE)
    return forgotten
