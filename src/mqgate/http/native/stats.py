"""GET /v1/stats: statistics over time, as the pipelines wrote them."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mqgate.core.cursors import MAX_ROW, parse_cursor
from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant
from mqgate.core.times import format_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import query, query_instant
from mqgate.http.native.registry import check_limit
from mqgate.http.operation import describe
from mqgate.stats import reports
from mqgate.stats.reports import ReportQuery, Step
from mqgate.stats.store import StatsStore

__all__ = ["StatsApi"]

_NAMES = ("topic", "kind", "producer", "group", "clientId", "outcome")
# The default time range by step.
_DEFAULT_RANGES = {"minute": timedelta(hours=1), "hour": timedelta(days=1), "day": timedelta(days=30)}
_FIRST = datetime.min.replace(tzinfo=UTC)


class StatsQuery(Struct, rename="camel", forbid_unknown_fields=True):
    topic: str | None = None
    group: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    limit: int = 100
    cursor: str | None = None


class StepQuery(StatsQuery, rename="camel", forbid_unknown_fields=True):
    step: Literal["minute", "hour", "day"] = "minute"


class TrafficQuery(StepQuery, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None
    client_id: str | None = None
    kind: str | None = None
    by: str = "topic,kind"


class LatencyQuery(StepQuery, rename="camel", forbid_unknown_fields=True):
    measure: Literal["delivery", "ack", "work"] | None = None


class LagHistoryQuery(StatsQuery, rename="camel", forbid_unknown_fields=True):
    client_id: str | None = None


class ReconciliationQuery(StatsQuery, rename="camel", forbid_unknown_fields=True):
    state: Literal["clean", "unknown", "broken"] | None = None


class FindingsQuery(StatsQuery, rename="camel", forbid_unknown_fields=True):
    finding: str | None = None


class TrafficOut(Struct, rename="camel", omit_defaults=True):
    at: str
    count: int
    bytes: int
    redelivered: int
    topic: str | None = None
    kind: str | None = None
    producer: str | None = None
    group: str | None = None
    client_id: str | None = None
    outcome: str | None = None


class LatencyOut(Struct):
    at: str
    topic: str
    group: str
    measure: str
    count: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


class RedeliveryOut(Struct, rename="camel"):
    at: str
    topic: str
    group: str
    delivered: int
    redelivered: int
    dead: int
    polls: int
    empty_polls: int
    ratio: float | None
    empty_ratio: float | None


class LagHistoryOut(Struct, rename="camel"):
    at: str
    topic: str
    group: str
    client_id: str | None
    lag: int
    ready: int
    leased: int
    waiting: int
    oldest_age: float | None
    growth: float | None
    drain_time: float | None


class ReconciliationOut(Struct, rename="camel"):
    at: str
    topic: str
    group: str
    client_id: str | None
    published: int
    acked: int
    dead: int
    filtered: int
    expired: int
    skipped: int
    pending: int
    unwatched: int
    unknown: int
    missing: int
    duplicates: int
    late_acks: int
    state: str
    why: str | None
    judged_at: str


class FindingOut(Struct, rename="camel"):
    at: str
    topic: str
    group: str
    client_id: str | None
    queue: str
    offset: int
    finding: str
    id: str | None
    detail: str | None


class StuckOut(Struct, rename="camel"):
    topic: str
    group: str
    queue: str
    offset: int
    at: str
    id: str | None
    client_id: str | None
    delivery: int
    stored_at: str | None
    reason: str


class PipelineOut(Struct, rename="camel"):
    pipeline: str
    at: str
    state: str
    batch: int | None
    rows: int | None
    rows_per_second: float | None
    behind: int | None
    restarts: int
    error: str | None


class TrafficPage(Struct):
    items: list[TrafficOut]
    next: str | None


class LatencyPage(Struct):
    items: list[LatencyOut]
    next: str | None


class RedeliveryPage(Struct):
    items: list[RedeliveryOut]
    next: str | None


class LagPage(Struct):
    items: list[LagHistoryOut]
    next: str | None


class ReconciliationPage(Struct):
    items: list[ReconciliationOut]
    next: str | None


class FindingsPage(Struct):
    items: list[FindingOut]
    next: str | None


class StuckPage(Struct):
    items: list[StuckOut]
    next: str | None


class PipelinesOut(Struct):
    items: list[PipelineOut]


class StatsApi:
    """Reads the statistics in threads, so that a long report does not block the event loop."""

    def __init__(self, open_store: Callable[[], StatsStore], clock: Callable[[], datetime]) -> None:
        self._open = open_store
        self._clock = clock

    @describe("trafficStats", "stats", query=TrafficQuery, responses={200: TrafficPage}, errors=(404, 507))
    async def traffic(self, request: Request) -> Response:
        """Show message and byte counts, errors and redeliveries."""
        given = query(request, TrafficQuery)
        by = tuple(given.by.split(","))
        if not set(by) <= set(_NAMES) or len(set(by)) < len(by):
            raise InvalidValue(f"by must be a comma-separated list of {', '.join(_NAMES)}", field="by")
        columns = tuple("client" if name == "clientId" else name for name in by)
        filters = {"producer": given.producer, "client": given.client_id, "kind": given.kind}
        return await self._page(given, given.step, filters, lambda s, a: reports.traffic(s, a, columns), TrafficOut)

    @describe("latencyStats", "stats", query=LatencyQuery, responses={200: LatencyPage}, errors=(404, 507))
    async def latency(self, request: Request) -> Response:
        """Show latency percentiles."""
        given = query(request, LatencyQuery)
        return await self._page(given, given.step, {"measure": given.measure}, reports.latency, LatencyOut)

    @describe("redeliveryStats", "stats", query=StepQuery, responses={200: RedeliveryPage}, errors=(404, 507))
    async def redelivery(self, request: Request) -> Response:
        """Show redeliveries, dead letters and empty receives."""
        given = query(request, StepQuery)
        return await self._page(given, given.step, {}, reports.redelivery, RedeliveryOut)

    @describe("lagStats", "stats", query=LagHistoryQuery, responses={200: LagPage}, errors=(404, 507))
    async def lag(self, request: Request) -> Response:
        """Show the lag of groups over time, and its trend."""
        given = query(request, LagHistoryQuery)
        return await self._page(given, "minute", {"client": given.client_id}, reports.lag, LagHistoryOut)

    @describe(
        "reconciliationStats",
        "stats",
        query=ReconciliationQuery,
        responses={200: ReconciliationPage},
        errors=(404, 507),
    )
    async def reconciliation(self, request: Request) -> Response:
        """Show where published messages went, per hour."""
        given = query(request, ReconciliationQuery)
        return await self._page(given, "hour", {"state": given.state}, reports.reconciliation, ReconciliationOut)

    @describe("findingsStats", "stats", query=FindingsQuery, responses={200: FindingsPage}, errors=(404, 507))
    async def findings(self, request: Request) -> Response:
        """List messages that the reconciliation reported."""
        given = query(request, FindingsQuery)
        return await self._page(given, "hour", {"finding": given.finding}, reports.findings, FindingOut)

    @describe("stuckStats", "stats", query=StatsQuery, responses={200: StuckPage}, errors=(404, 507))
    async def stuck(self, request: Request) -> Response:
        """List messages that were delivered often or are unsettled for long."""
        return await self._page(query(request, StatsQuery), "hour", {}, reports.stuck, StuckOut)

    @describe("pipelinesStats", "stats", responses={200: PipelinesOut}, errors=(404, 507))
    async def pipelines(self, _: Request) -> Response:
        """Show the state of the pipelines."""
        rows = await asyncio.to_thread(lambda: reports.pipelines(self._open()))
        return reply(200, {"items": [_to_struct(PipelineOut, row) for row in rows]})

    async def _page(
        self,
        given: StatsQuery,
        step: Step,
        filters: dict[str, str | None],
        read: Callable[[StatsStore, ReportQuery], list[dict[str, Any]]],
        out: type[Struct],
    ) -> Response:
        limit = check_limit(given.limit)
        (skipped,) = (0,) if given.cursor is None else parse_cursor(given.cursor, MAX_ROW)
        until = query_instant(given.to, "to") or self._clock() + timedelta(minutes=1)
        since = query_instant(given.from_, "from") or max(until, _FIRST + _DEFAULT_RANGES[step]) - _DEFAULT_RANGES[step]
        names = {"topic": given.topic, "group": given.group, **filters}
        known = {name: value for name, value in names.items() if value}
        for name, value in known.items():
            if "\0" in value:
                # SQLite would return no rows, PostgreSQL would fail.
                raise InvalidValue(f"{name} must not contain U+0000", field="clientId" if name == "client" else name)
        requested = ReportQuery(since, until, limit + 1, skipped, step, known)
        rows = await asyncio.to_thread(lambda: read(self._open(), requested))
        next_cursor = str(skipped + limit) if len(rows) > limit else None
        return reply(200, {"items": [_to_struct(out, row) for row in rows[:limit]], "next": next_cursor})


def _to_struct(out: type[Struct], row: dict[str, Any]) -> Struct:
    """Return a row as its response type: instants as text, empty text as null."""
    members = {}
    for name, value in row.items():
        if name in {"at", "stored_at", "judged_at"}:
            members[name] = None if value is None else format_instant(instant(value))
        elif name == "client":
            members["client_id"] = value or None
        else:
            members[name] = None if value == "" and name not in {"topic", "group", "queue"} else value
    return out(**members)
