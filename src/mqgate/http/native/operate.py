"""Handlers for operators: lag, clients, seek, pause and resume of a group, and the audit log."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mqgate.consumption.positions import PositionService, Target, age
from mqgate.control.registry.model import Instant
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import InvalidValue, UnsupportedByMode
from mqgate.core.lease import ClientInfo, Position
from mqgate.core.names import check_client, is_client
from mqgate.core.times import format_instant, parse_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.lookup import requested_group
from mqgate.http.native.registry import GroupOut, ListQuery, check_limit, group_out, page
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.registry_store import RegistryStore

_MAX_REASON = 1_000
# Enough for an offset for each of 1,000 queues with long broker names.
_MAX_SEEK_BYTES = 256 << 10


class LagQuery(Struct, rename="camel", forbid_unknown_fields=True):
    client_id: str | None = None


class QueueLag(Struct, rename="camel"):
    queue: str
    min: int
    max: int
    committed: int
    cursor: int
    ready: int
    leased: int
    waiting: int
    locked_until: str | None
    last_client: str | None
    last_consumed_at: str | None
    attempts: int
    blocked: bool
    expired: int


class LagOut(Struct, rename="camel"):
    lag: int
    ready: int
    leased: int
    waiting: int
    oldest_age: float | None
    queues: list[QueueLag]


class ClientOut(Struct, rename="camel"):
    client_id: str
    address: str
    first_seen: str
    last_seen: str
    holds: list[str]


class Clients(Struct):
    items: list[ClientOut]
    next: str | None


class SeekIn(Struct, rename="camel", forbid_unknown_fields=True):
    to: Literal["earliest", "latest"] | Instant | dict[str, int]
    client_id: str | None = None
    dry_run: bool = False
    reason: str | None = None


class SeekResultOut(Struct, rename={"old": "from", "new": "to"}):
    queue: str
    old: int
    new: int
    skipped: int
    repeated: int


class SeekOut(Struct, rename="camel"):
    dry_run: bool
    queues: list[SeekResultOut]


class ReasonIn(Struct, rename="camel", forbid_unknown_fields=True):
    reason: str | None = None


class AuditEntryOut(Struct, rename="camel"):
    at: str
    actor: str
    action: str
    subject: str
    reason: str | None
    details: Any


class AuditEntriesOut(Struct):
    items: list[AuditEntryOut]
    next: str | None


_seek_in = msgspec.json.Decoder(SeekIn)
_reason_in = msgspec.json.Decoder(ReasonIn)


class OperateApi:
    def __init__(
        self,
        *,
        registry: Registry,
        store: RegistryStore,
        positions: PositionService,
        leases: LeaseStore,
        clock: Callable[[], datetime],
        changed: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._store = store
        self._positions = positions
        self._leases = leases
        self._clock = clock
        self._changed = changed

    @describe("lag", "operate", query=LagQuery, responses={200: LagOut}, errors=(404, 507))
    async def lag(self, request: Request) -> Response:
        """Show the lag of a group, per queue."""
        group = await requested_group(request, self._registry)
        client = _client(group, query(request, LagQuery).client_id)
        found = await self._positions.lag(group, client, is_now=True)
        rows = found.positions
        oldest = age(found.oldest, self._clock())
        return reply(
            200,
            LagOut(
                lag=sum(max(row.lag, 0) for row in rows),
                ready=sum(row.ready for row in rows),
                leased=sum(row.leased for row in rows),
                waiting=sum(row.waiting for row in rows),
                oldest_age=None if oldest is None else oldest.total_seconds(),
                queues=[_queue_lag(row) for row in rows],
            ),
        )

    @describe("clients", "operate", query=ListQuery, responses={200: Clients}, errors=(404, 507))
    async def clients(self, request: Request) -> Response:
        """List the clients of a group and the queues that they hold."""
        group = await requested_group(request, self._registry)
        found = {client.name: client for client in await self._leases.clients(group.name)}
        return page(request, found, _client_out, is_client)

    @describe(
        "seek",
        "operate",
        request_type=SeekIn,
        responses={200: SeekOut},
        errors=(404, 507),
        max_body_bytes=_MAX_SEEK_BYTES,
    )
    async def seek(self, request: Request) -> Response:
        """Seek a group to another position."""
        group = await requested_group(request, self._registry)
        given = decode(request.body, _seek_in)
        _check_reason(given.reason)
        client = _client(group, given.client_id)
        moved = await self._positions.seek(group, client, _target(given.to), is_dry_run=given.dry_run)
        rows = [SeekResultOut(row.queue, row.old, row.new, row.skipped, row.repeated) for row in moved]
        if not given.dry_run:
            self._changed(group.name)
            details = {"client": client, "queues": [[row.queue, row.old, row.new] for row in moved]}
            await self._registry.record(request.principal.name, "seek", f"group {group.name}", given.reason, details)
        return reply(200, SeekOut(given.dry_run, rows))

    @describe(
        "pause",
        "operate",
        request_type=ReasonIn,
        is_body_optional=True,
        responses={200: GroupOut},
        errors=(404, 409, 507),
    )
    async def pause(self, request: Request) -> Response:
        """Pause a group: no new leases are granted."""
        return await self._pause(request, is_paused=True)

    @describe(
        "resume",
        "operate",
        request_type=ReasonIn,
        is_body_optional=True,
        responses={200: GroupOut},
        errors=(404, 409, 507),
    )
    async def resume(self, request: Request) -> Response:
        """Resume a paused group."""
        return await self._pause(request, is_paused=False)

    async def _pause(self, request: Request, *, is_paused: bool) -> Response:
        await requested_group(request, self._registry)
        given = decode(request.body, _reason_in) if request.body else ReasonIn()
        _check_reason(given.reason)
        group = await self._registry.pause(
            request.path("group"), is_paused=is_paused, reason=given.reason, actor=request.principal.name
        )
        return reply(200, group_out(group))

    @describe("listActs", "operate", query=ListQuery, responses={200: AuditEntriesOut})
    async def audit(self, request: Request) -> Response:
        """List audit entries, the newest first."""
        requested = query(request, ListQuery)
        entries, next_cursor = await self._store.audit_entries(check_limit(requested.limit), requested.cursor)
        items = [
            AuditEntryOut(
                format_instant(entry.at),
                entry.actor,
                entry.action,
                entry.subject,
                entry.reason,
                msgspec.Raw(entry.details.encode()),
            )
            for entry in entries
        ]
        return reply(200, AuditEntriesOut(items, next_cursor))


def _client_out(client: ClientInfo) -> ClientOut:
    seen = format_instant(client.first_seen), format_instant(client.last_seen)
    return ClientOut(client.name, client.address, *seen, list(client.holds))


def _client(group: Group, client: str | None) -> str:
    if group.mode is Mode.BROADCAST:
        if client is None:
            raise InvalidValue("clientId is required for broadcast groups", field="clientId")
        return check_client(client)
    if client is not None:
        raise UnsupportedByMode("clientId is supported for broadcast groups only. Omit it.", field="clientId")
    return ""


def _target(to: Any) -> Target:
    if isinstance(to, dict):
        if not to:
            raise InvalidValue("to must name at least one queue", field="to")
        return to
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    return parse_instant(to, "to")


def _check_reason(reason: str | None) -> None:
    if reason is not None and len(reason) > _MAX_REASON:
        raise InvalidValue(f"reason may have at most {_MAX_REASON} characters", field="reason", limit=_MAX_REASON)


def _queue_lag(row: Position) -> QueueLag:
    return QueueLag(
        queue=row.queue,
        min=row.min,
        max=row.max,
        committed=row.committed,
        cursor=row.cursor,
        ready=row.ready,
        leased=row.leased,
        waiting=row.waiting,
        locked_until=maybe_instant(row.locked_until),
        last_client=row.last_client,
        last_consumed_at=maybe_instant(row.last_consumed_at),
        attempts=row.attempts,
        blocked=row.is_blocked,
        expired=row.expired,
    )
