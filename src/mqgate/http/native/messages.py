"""Looking into the log: by id, by key and time, by offset. Touches no group."""

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from mqgate.control.registry.service import Registry
from mqgate.core.errors import InvalidValue, MessageNotFound
from mqgate.http.exchange import Answer, Request, reply
from mqgate.http.json_input import query, query_instant
from mqgate.http.native.registry import ListQuery, check_cursor, check_limit
from mqgate.http.native.shapes import MessageOut, maybe_instant, message_out
from mqgate.http.operation import Operation
from mqgate.ports.message_log import MessageLog
from mqgate.settings import HttpSettings

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)


class FindQuery(Struct, rename="camel", forbid_unknown_fields=True):
    key: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    limit: int = 100
    cursor: str | None = None


class RangeQuery(Struct, rename="camel", forbid_unknown_fields=True):
    offset: int = 0
    max: int = 32


class Messages(Struct):
    items: list[MessageOut]
    next: str | None


class RangeOut(Struct):
    messages: list[MessageOut]
    next: int
    min: int
    max: int


class QueueOut(Struct, rename="camel"):
    queue: str
    min: int
    max: int
    first_stored_at: str | None
    last_stored_at: str | None


class Queues(Struct):
    items: list[QueueOut]
    next: str | None


class MessagesApi:
    def __init__(self, registry: Registry, log: MessageLog, settings: HttpSettings) -> None:
        self._registry = registry
        self._log = log
        self._settings = settings

    def operations(self) -> list[Operation]:
        topic = "/v1/topics/{topic}"
        return [
            Operation(
                name="findMessages",
                method="GET",
                path=f"{topic}/messages",
                summary="Find messages by key and time",
                tag="look",
                handler=self.find,
                query=FindQuery,
                answers={200: Messages},
                refusals=(404,),
            ),
            Operation(
                name="getMessage",
                method="GET",
                path=f"{topic}/messages/{{id}}",
                summary="Show a message",
                tag="look",
                handler=self.get,
                answers={200: MessageOut},
                refusals=(404,),
            ),
            Operation(
                name="listQueues",
                method="GET",
                path=f"{topic}/queues",
                summary="The ends of a topic's queues, and their times",
                tag="look",
                handler=self.queues,
                query=ListQuery,
                answers={200: Queues},
                refusals=(404,),
            ),
            Operation(
                name="readQueue",
                method="GET",
                path=f"{topic}/queues/{{queue}}/messages",
                summary="A range of a queue",
                tag="look",
                handler=self.read,
                query=RangeQuery,
                answers={200: RangeOut},
                refusals=(404,),
            ),
        ]

    async def get(self, request: Request) -> Answer:
        request.principal.need_admin()
        topic = self._registry.topic(request.path("topic")).name
        message = await self._log.find(topic, request.path("id"))
        if message is None:
            raise MessageNotFound(f"topic {topic} holds no message {request.path('id')}")
        return reply(200, message_out(message))

    async def find(self, request: Request) -> Answer:
        request.principal.need_admin()
        topic = self._registry.topic(request.path("topic")).name
        asked = query(request, FindQuery)
        found, more = await self._log.find_by_key(
            topic,
            asked.key,
            since=query_instant(asked.from_, "from") or _FIRST,
            until=query_instant(asked.to, "to") or _LAST,
            most=check_limit(asked.limit),
            after=check_cursor(asked.cursor),
        )
        return reply(200, Messages([message_out(each) for each in found], more))

    async def queues(self, request: Request) -> Answer:
        request.principal.need_admin()
        topic = self._registry.topic(request.path("topic")).name
        heads = (await self._log.heads(topic)).queues
        asked = query(request, ListQuery)
        limit = check_limit(asked.limit)
        names = sorted(heads, key=_number)
        rest = [name for name in names if asked.cursor is None or _number(name) > _number(asked.cursor)]
        items = []
        for queue in rest[:limit]:
            low, end = heads[queue]
            first = await self._log.read(topic, queue, low, 1, 1) if low < end else ()
            last = await self._log.read(topic, queue, end - 1, 1, 1) if low < end else ()
            times = [maybe_instant(each[0].stored_at if each else None) for each in (first, last)]
            items.append(QueueOut(queue, low, end, *times))
        return reply(200, Queues(items, rest[limit - 1] if len(rest) > limit else None))

    async def read(self, request: Request) -> Answer:
        request.principal.need_admin()
        topic = self._registry.topic(request.path("topic")).name
        asked = query(request, RangeQuery)
        if not 0 <= asked.offset < 1 << 40:
            raise InvalidValue("offset must be 0 or more", field="offset")
        if not 1 <= asked.max <= self._settings.max_batch:
            raise InvalidValue(f"max must be 1 to {self._settings.max_batch}", field="max")
        found = await self._log.read(
            topic, request.path("queue"), asked.offset, asked.max, self._settings.max_answer_bytes
        )
        head = (await self._log.heads(topic)).queues[request.path("queue")]
        return reply(
            200,
            RangeOut([message_out(each) for each in found], asked.offset + len(found), head.min, head.max),
        )


def _number(queue: str) -> int:
    """A queue's place in its broker, for the order of lists; what is no queue's name comes last."""
    number = queue.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 1 << 31  # noqa: PLR2004 - digits
