"""Handlers that read messages by id, by key and time, or by offset. Groups are not affected."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from mqgate.control.registry.service import Registry
from mqgate.core.errors import InvalidValue, MessageNotFound
from mqgate.core.message import END_OF_OFFSETS
from mqgate.http.accept import choose
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import query, query_instant
from mqgate.http.native.bulk_read import ARROW, BulkReadRequest, BulkReads
from mqgate.http.native.registry import check_limit
from mqgate.http.native.schemas import MessageOut, message_out
from mqgate.http.operation import describe
from mqgate.ports.message_columns import COLUMNS, DEFAULT_COLUMNS
from mqgate.ports.message_log import MessageLog
from mqgate.settings import HttpSettings

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_JSON = "application/json"
_DEFAULT_MESSAGES, _DEFAULT_BULK_MESSAGES = 32, 10_000


class FindQuery(Struct, rename="camel", forbid_unknown_fields=True):
    key: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    limit: int = 100
    cursor: str | None = None


class RangeQuery(Struct, rename="camel", forbid_unknown_fields=True):
    offset: int = 0
    max: int | None = None
    columns: str | None = None


class Messages(Struct):
    items: list[MessageOut]
    next: str | None


class RangeOut(Struct):
    messages: list[MessageOut]
    next: int
    min: int
    max: int


class MessagesApi:
    def __init__(self, registry: Registry, log: MessageLog, settings: HttpSettings) -> None:
        self._registry = registry
        self._log = log
        self._settings = settings
        self._bulk_reads = BulkReads(log, settings.max_bulk_reads)

    @describe("getMessage", "messages", responses={200: MessageOut}, errors=(404,))
    async def get(self, request: Request) -> Response:
        """Show a message."""
        topic = await self._registry.readable(request.path("topic"))
        message = await self._log.find(topic, request.path("id"))
        if message is None:
            raise MessageNotFound(f"Topic {topic} has no message {request.path('id')}.")
        return reply(200, message_out(message))

    @describe("findMessages", "messages", query=FindQuery, responses={200: Messages}, errors=(404,))
    async def find(self, request: Request) -> Response:
        """Find messages by key and time."""
        topic = await self._registry.readable(request.path("topic"))
        requested = query(request, FindQuery)
        found, next_cursor = await self._log.find_by_key(
            topic,
            requested.key,
            since=query_instant(requested.from_, "from") or _EARLIEST,
            until=query_instant(requested.to, "to") or _LATEST,
            limit=check_limit(requested.limit),
            after=requested.cursor,
        )
        return reply(200, Messages([message_out(message) for message in found], next_cursor))

    @describe(
        "readQueue", "messages", query=RangeQuery, responses={200: RangeOut}, stream_type=ARROW, errors=(404, 406)
    )
    async def read(self, request: Request) -> Response:
        """Read a range of a queue."""
        topic = await self._registry.readable(request.path("topic"))
        requested = query(request, RangeQuery)
        if not 0 <= requested.offset < END_OF_OFFSETS:
            raise InvalidValue("offset must be 0 or more", field="offset")
        if choose(request.header(b"accept"), (_JSON, ARROW)) == ARROW:
            return await self._stream(topic, request.path("queue"), requested)
        if requested.columns is not None:
            raise InvalidValue(f"columns requires Accept: {ARROW}", field="columns")
        limit = _check_max(requested.max, _DEFAULT_MESSAGES, self._settings.max_batch)
        found = await self._log.read(
            topic, request.path("queue"), requested.offset, limit, self._settings.max_answer_bytes
        )
        bounds = (await self._log.bounds(topic)).queues[request.path("queue")]
        return reply(
            200,
            RangeOut(
                [message_out(message) for message in found], requested.offset + len(found), bounds.min, bounds.max
            ),
        )

    async def _stream(self, topic: str, queue: str, requested: RangeQuery) -> Response:
        limit = _check_max(requested.max, _DEFAULT_BULK_MESSAGES, self._settings.max_bulk_messages)
        bulk_request = BulkReadRequest(
            topic, queue, requested.offset, requested.offset + limit, _check_columns(requested.columns)
        )
        return Response(200, content_type=ARROW.encode(), stream=await self._bulk_reads.open(bulk_request))


def _check_max(given: int | None, default: int, limit: int) -> int:
    chosen = min(default, limit) if given is None else given
    if not 1 <= chosen <= limit:
        raise InvalidValue(f"max must be 1 to {limit}", field="max", limit=limit)
    return chosen


def _check_columns(given: str | None) -> Sequence[str]:
    names = DEFAULT_COLUMNS if given is None else tuple(given.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names):
        problem = f"{unknown[0]!r} is unknown" if unknown else "a column is repeated"
        raise InvalidValue(f"columns must be a list of {','.join(COLUMNS)}: {problem}", field="columns")
    return names
