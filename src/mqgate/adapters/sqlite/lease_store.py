"""LeaseStore on the embedded engine: every method is one writer's transaction."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta

from mqgate.adapters.sqlite import queue_leases as steps
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.queue_leases import SQL, Row, Scope
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import TooManyClients
from mqgate.core.lease import (
    LEAST_REMEMBERED,
    MEMORY,
    UNKNOWN,
    Acquire,
    Acquired,
    Client,
    Doomed,
    Grant,
    Head,
    Moved,
    Placement,
    Position,
    Settled,
    Settlement,
    State,
)
from mqgate.core.message import instant

_MS = timedelta(milliseconds=1)
_FORGOTTEN_AT_ONCE = 1_000
_SEEN_CLIENTS_KEPT = timedelta(days=1)


class SqliteLeaseStore:
    def __init__(self, engine: Engine, *, most_clients: int = 1_000) -> None:
        self._engine = engine
        self._most_clients = most_clients

    async def open(
        self, group: Group, client: str, starts: Mapping[str, int], heads: Mapping[str, Head]
    ) -> bool:
        def job(tx: Transaction) -> bool:
            if steps.scope_of(tx, group, client) is not None:
                return False
            if group.mode is Mode.BROADCAST:
                idle_since = tx.now_ms - group.client_ttl // _MS
                for (idle,) in tx.all(SQL["idle_scopes"], (group.name, idle_since)):
                    steps.drop(tx, idle)
                if tx.one(SQL["count_scopes"], (group.name,))[0] >= self._most_clients:
                    raise TooManyClients(
                        f"group {group.name} has {self._most_clients} clients: reuse a clientId, or wait until "
                        "idle ones are forgotten",
                        limit=self._most_clients,
                    )
            scope = tx.one(SQL["add_scope"], (group.name, client, os.urandom(8).hex(), tx.now_ms))[0]
            for queue, start in starts.items():
                head = heads[queue]
                tx.execute(SQL["add_queue"], (scope, queue, head.min, head.max, start, tx.now_ms))
            return True

        return await self._engine.write(job)

    async def acquire(self, request: Acquire) -> Acquired:
        return await self._engine.write(lambda tx: _acquire(tx, request))

    async def place(self, group: Group, placements: Sequence[Placement]) -> None:
        def job(tx: Transaction) -> None:
            for each in placements:
                steps.place(tx, each)

        await self._engine.write(job)

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        return await self._engine.write(lambda tx: [steps.settle(tx, group, each) for each in settlements])

    async def bury(self, doomed: Doomed) -> bool:
        def job(tx: Transaction) -> bool:
            found = steps.current(tx, doomed.lease)
            if found is None:
                return False
            scope, row = found
            tx.execute(SQL["commit"], (row.committed + 1, tx.now_ms, tx.now_ms, scope.number, row.queue))
            return True

        return await self._engine.write(job)

    async def seek(
        self, group: Group, client: str, targets: Mapping[str, int], *, is_dry_run: bool
    ) -> Sequence[Moved] | None:
        def job(tx: Transaction) -> list[Moved] | None:
            scope = steps.scope_of(tx, group, client)
            if scope is None:
                return None
            rows = {row[0]: Row(*row) for row in tx.all(SQL["queues"], (scope.number,))}
            moves = [
                Moved(queue, rows[queue].committed, to) for queue, to in targets.items() if queue in rows
            ]
            if not is_dry_run:
                for move in moves:
                    tx.execute(SQL["move"], (move.new, tx.now_ms, tx.now_ms, scope.number, move.queue))
            return moves

        return await self._engine.write(job)

    async def positions(
        self, group: Group, client: str, heads: Mapping[str, Head]
    ) -> tuple[Sequence[Position], Sequence[Doomed]] | None:
        def job(tx: Transaction) -> tuple[list[Position], list[Doomed]] | None:
            scope = steps.scope_of(tx, group, client)
            if scope is None:
                return None
            steps.see_heads(tx, scope, heads)
            tx.execute(SQL["free_ended"], (scope.number, tx.now_ms))
            doomed = steps.doom_exhausted(tx, scope, group)
            rows = tx.all(SQL["queues"], (scope.number,))
            return [_position(Row(*row), tx.now_ms) for row in rows], doomed

        return await self._engine.write(job)

    async def clients(self, group: str) -> Sequence[Client]:
        def job(tx: Transaction) -> list[Client]:
            holds: dict[str, list[str]] = {}
            for client, queue, last in tx.all(SQL["held_queues"], (group, tx.now_ms)):
                holds.setdefault(client or last, []).append(queue)
            return [
                Client(name, address, instant(first), instant(last), sorted(holds.get(name, ())))
                for name, address, first, last in tx.all(SQL["clients"], (group, self._most_clients))
            ]

        return await self._engine.write(job)

    async def forget(self, group: str) -> None:
        def job(tx: Transaction) -> None:
            for (scope,) in tx.all(SQL["scopes_of_group"], (group,)):
                steps.drop(tx, scope)
            tx.execute(SQL["drop_clients"], (group,))
            tx.execute(SQL["drop_tokens"], (group,))

        await self._engine.write(job)

    async def tidy(self) -> None:
        """Forget spent receipts that are old enough, and clients not seen for a day."""
        while await self._engine.write(_forget_settled):
            pass

        def forget_clients(tx: Transaction) -> None:
            tx.execute(SQL["forget_clients"], (tx.now_ms - _SEEN_CLIENTS_KEPT // _MS,))

        await self._engine.write(forget_clients)


def _acquire(tx: Transaction, request: Acquire) -> Acquired:
    group = request.group
    scope = steps.scope_of(tx, group, request.client)
    if scope is None:
        return UNKNOWN
    settled = [steps.settle(tx, group, each) for each in request.settlements]
    doomed = [each.doomed for each in settled if each.doomed]
    tx.execute(SQL["see_client"], (group.name, request.polled_by, request.address, tx.now_ms))
    if request.attempt is not None:
        same = steps.replay(tx, scope, request)
        if same is not None:
            return Acquired(is_known=True, settled=settled, grants=(same,), doomed=doomed)
    rewound = steps.see_heads(tx, scope, request.heads)
    if group.is_paused:
        return Acquired(is_known=True, settled=settled, state=State.PAUSED, rewound=rewound, doomed=doomed)
    tx.execute(SQL["free_ended"], (scope.number, tx.now_ms))
    doomed += steps.doom_exhausted(tx, scope, group)
    grant, state, expired = _choose_and_grant(tx, scope, request)
    return Acquired(
        is_known=True,
        settled=settled,
        grants=(grant,) if grant else (),
        state=state,
        expired=expired,
        rewound=rewound,
        doomed=doomed,
    )


def _choose_and_grant(tx: Transaction, scope: Scope, request: Acquire) -> tuple[Grant | None, State, int]:
    row = steps.choose(tx, scope)
    if row is None:
        return None, steps.why_empty(tx, scope), 0
    grant, expired = steps.grant(tx, scope, request, row)
    return grant, State.OK if grant else State.RATE_LIMITED, expired


def _position(row: Row, now_ms: int) -> Position:
    is_leased = bool(row.held) and now_ms < row.leased_until
    batch = max(row.batch_next - max(row.committed, row.head_min), 0) if row.held else 0
    return Position(
        queue=row.queue,
        min=row.head_min,
        max=row.head_max,
        committed=row.committed,
        cursor=row.batch_next if is_leased else row.committed,
        leased=batch if is_leased else 0,
        waiting=0 if is_leased else batch,
        locked_until=instant(row.leased_until) if is_leased else None,
        last_client=row.last_client,
        last_consumed_at=instant(row.last_consumed_at) if row.last_consumed_at else None,
        attempts=row.attempts,
        is_blocked=bool(row.exhausted) and not row.held,
        expired=row.expired,
        epoch=row.epoch,
    )


def _forget_settled(tx: Transaction) -> int:
    forgotten = 0
    for scope, *_ in tx.all(SQL["all_scopes"]):
        values = (scope, tx.now_ms - MEMORY // _MS, LEAST_REMEMBERED, _FORGOTTEN_AT_ONCE)
        for number, queue, epoch in tx.all(SQL["forgettable"], values):
            tx.execute(SQL["forget_settled"], (number,))
            tx.execute(SQL["sweep"], (epoch, scope, queue))
            forgotten += 1
    return forgotten
