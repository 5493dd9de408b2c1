"""Topics, producers, groups and keys: PUT, GET, PATCH, DELETE, lists."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from mqgate.control.access.service import Access
from mqgate.control.registry.model import GroupSpec, Instant, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.backoff import Backoff
from mqgate.core.cursors import invalid_cursor
from mqgate.core.entries import ApiKey, Group, Producer, RateLimit, Topic
from mqgate.core.errors import InvalidValue
from mqgate.core.names import is_name
from mqgate.core.times import format_instant, parse_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.native.shapes import maybe_instant
from mqgate.http.operation import Operation
from mqgate.ports.directory import Directory

MOST_ITEMS = 1_000
_T = TypeVar("_T")


class TopicOut(Struct, rename="camel"):
    name: str
    queues: int
    retention: float | None
    retention_bytes: int | None
    created_at: str


class RateOut(Struct, rename="camel"):
    rate: float
    burst: float


class ProducerOut(Struct, rename="camel"):
    name: str
    topic: str
    rate_limit: RateOut | None
    created_at: str


class BackoffOut(Struct, rename="camel"):
    initial: float
    factor: float
    max: float
    jitter: float


class FilterOut(Struct):
    tags: list[str]


class GroupOut(Struct, rename="camel"):
    name: str
    topic: str
    mode: str
    start: str
    visibility: float
    max_attempts: int
    backoff: BackoffOut | list[float]
    on_poison: str
    filter: FilterOut | None
    ordered: bool
    max_in_flight: int
    rate_limit: RateOut | None
    client_ttl: float
    paused: bool
    pause_reason: str | None
    created_at: str


class KeyIn(Struct, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None
    group: str | None = None
    role: Literal["admin"] | None = None
    expires_at: Instant | None = None


class NewKeyOut(Struct, rename="camel"):
    id: str
    key: str


class KeyOut(Struct, rename="camel"):
    id: str
    producer: str | None
    group: str | None
    role: str | None
    created_at: str
    expires_at: str | None


class Topics(Struct):
    items: list[TopicOut]
    next: str | None


class Producers(Struct):
    items: list[ProducerOut]
    next: str | None


class Groups(Struct):
    items: list[GroupOut]
    next: str | None


class Keys(Struct):
    items: list[KeyOut]
    next: str | None


class ListQuery(Struct, rename="camel", forbid_unknown_fields=True):
    limit: int = 100
    cursor: str | None = None


_topic_in = msgspec.json.Decoder(TopicSpec)
_producer_in = msgspec.json.Decoder(ProducerSpec)
_group_in = msgspec.json.Decoder(GroupSpec)
_key_in = msgspec.json.Decoder(KeyIn)


class RegistryApi:
    def __init__(self, registry: Registry, access: Access, directory: Directory) -> None:
        self._registry = registry
        self._access = access
        self._directory = directory

    def operations(self) -> list[Operation]:
        return [
            *self._entry("topic", TopicSpec, TopicOut, Topics, self.put_topic, self.get_topic, self.delete_topic),
            *self._entry(
                "producer",
                ProducerSpec,
                ProducerOut,
                Producers,
                self.put_producer,
                self.get_producer,
                self.delete_producer,
            ),
            *self._entry("group", GroupSpec, GroupOut, Groups, self.put_group, self.get_group, self.delete_group),
            Operation(
                name="patchGroup",
                method="PATCH",
                path="/v1/groups/{group}",
                summary="Change a group's settings",
                tag="registry",
                handler=self.patch_group,
                takes=GroupSpec,
                answers={200: GroupOut},
                refusals=(404, 409, 507),
            ),
            Operation(
                name="createKey",
                method="POST",
                path="/v1/keys",
                summary="Make a key; it is shown this once",
                tag="registry",
                handler=self.create_key,
                takes=KeyIn,
                answers={201: NewKeyOut},
                refusals=(404, 409, 507),
            ),
            Operation(
                name="listKeys",
                method="GET",
                path="/v1/keys",
                summary="List keys, never their text",
                tag="registry",
                handler=self.list_keys,
                query=ListQuery,
                answers={200: Keys},
            ),
            Operation(
                name="deleteKey",
                method="DELETE",
                path="/v1/keys/{key}",
                summary="Delete a key",
                tag="registry",
                handler=self.delete_key,
                answers={204: None},
                refusals=(404, 409, 507),
            ),
        ]

    def _entry(self, kind: str, takes: Any, gives: Any, lists: Any, put: Any, get: Any, delete: Any) -> list[Operation]:
        """The four operations that all kinds of entries share."""
        title = kind.capitalize()
        path = f"/v1/{kind}s/{{{kind}}}"
        return [
            Operation(
                name=f"put{title}",
                method="PUT",
                path=path,
                summary=f"Register or change a {kind}",
                tag="registry",
                handler=put,
                takes=takes,
                takes_nothing_too=kind == "topic",
                answers={200: gives, 201: gives},
                refusals=(404, 409, 507),
            ),
            Operation(
                name=f"get{title}",
                method="GET",
                path=path,
                summary=f"Show a {kind}",
                tag="registry",
                handler=get,
                answers={200: gives},
                refusals=(404,),
            ),
            Operation(
                name=f"delete{title}",
                method="DELETE",
                path=path,
                summary=f"Delete a {kind}",
                tag="registry",
                handler=delete,
                answers={204: None},
                refusals=(404, 409, 507),
            ),
            Operation(
                name=f"list{title}s",
                method="GET",
                path=f"/v1/{kind}s",
                summary=f"List {kind}s",
                tag="registry",
                handler=getattr(self, f"list_{kind}s"),
                query=ListQuery,
                answers={200: lists},
            ),
        ]

    async def put_topic(self, request: Request) -> Response:
        request.principal.need_admin()
        spec = decode(request.body, _topic_in) if request.body else TopicSpec()
        topic, is_new = await self._registry.put_topic(request.path("topic"), spec, request.principal.name)
        return reply(201 if is_new else 200, topic_out(topic))

    async def get_topic(self, request: Request) -> Response:
        request.principal.need_admin()
        return reply(200, topic_out(await self._registry.topic(request.path("topic"))))

    async def delete_topic(self, request: Request) -> Response:
        request.principal.need_admin()
        await self._registry.delete_topic(request.path("topic"), request.principal.name)
        return Response(204)

    async def list_topics(self, request: Request) -> Response:
        return _list(request, self._directory.snapshot.topics, topic_out)

    async def put_producer(self, request: Request) -> Response:
        request.principal.need_admin()
        spec = decode(request.body, _producer_in)
        producer, is_new = await self._registry.put_producer(request.path("producer"), spec, request.principal.name)
        return reply(201 if is_new else 200, producer_out(producer))

    async def get_producer(self, request: Request) -> Response:
        request.principal.need_admin()
        return reply(200, producer_out(await self._registry.producer(request.path("producer"))))

    async def delete_producer(self, request: Request) -> Response:
        request.principal.need_admin()
        await self._registry.delete_producer(request.path("producer"), request.principal.name)
        return Response(204)

    async def list_producers(self, request: Request) -> Response:
        return _list(request, self._directory.snapshot.producers, producer_out)

    async def put_group(self, request: Request) -> Response:
        request.principal.need_admin()
        spec = decode(request.body, _group_in)
        group, is_new = await self._registry.put_group(request.path("group"), spec, request.principal.name)
        return reply(201 if is_new else 200, group_out(group))

    async def patch_group(self, request: Request) -> Response:
        request.principal.need_admin()
        spec = decode(request.body, _group_in)
        group = await self._registry.patch_group(request.path("group"), spec, request.principal.name)
        return reply(200, group_out(group))

    async def get_group(self, request: Request) -> Response:
        request.principal.need_admin()
        return reply(200, group_out(await self._registry.group(request.path("group"))))

    async def delete_group(self, request: Request) -> Response:
        request.principal.need_admin()
        await self._registry.delete_group(request.path("group"), request.principal.name)
        return Response(204)

    async def list_groups(self, request: Request) -> Response:
        return _list(request, self._directory.snapshot.groups, group_out)

    async def create_key(self, request: Request) -> Response:
        request.principal.need_admin()
        given = decode(request.body, _key_in)
        key, text = await self._access.create(
            producer=given.producer,
            group=given.group,
            role=given.role,
            expires_at=None if given.expires_at is None else parse_instant(given.expires_at, "expiresAt"),
            actor=request.principal.name,
        )
        return reply(201, NewKeyOut(key.id, text))

    async def list_keys(self, request: Request) -> Response:
        return _list(request, self._directory.snapshot.keys, _key_out)

    async def delete_key(self, request: Request) -> Response:
        request.principal.need_admin()
        await self._access.delete(request.path("key"), request.principal.name)
        return Response(204)


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MOST_ITEMS:
        raise InvalidValue(f"limit must be 1 to {MOST_ITEMS}", field="limit", limit=MOST_ITEMS)
    return limit


def _list(request: Request, entries: Mapping[str, _T], shape: Callable[[_T], Any]) -> Response:
    request.principal.need_admin()
    return page(request, entries, shape)


def page(
    request: Request,
    entries: Mapping[str, _T],
    shape: Callable[[_T], Any],
    may_be_named: Callable[[str], bool] = is_name,
) -> Response:
    """A page of entries by name; the cursor is the last name of the page before."""
    asked = query(request, ListQuery)
    limit = check_limit(asked.limit)
    if asked.cursor is not None and not may_be_named(asked.cursor):
        raise invalid_cursor()
    names = sorted(name for name in entries if asked.cursor is None or name > asked.cursor)
    more = names[limit - 1] if len(names) > limit else None
    return reply(200, {"items": [shape(entries[name]) for name in names[:limit]], "next": more})


def topic_out(topic: Topic) -> TopicOut:
    return TopicOut(
        topic.name,
        topic.queues,
        _seconds(topic.retention),
        topic.retention_bytes,
        format_instant(topic.created_at),
    )


def producer_out(producer: Producer) -> ProducerOut:
    return ProducerOut(producer.name, producer.topic, _rate(producer.rate_limit), format_instant(producer.created_at))


def group_out(group: Group) -> GroupOut:
    return GroupOut(
        name=group.name,
        topic=group.topic,
        mode=group.mode,
        start=group.start,
        visibility=group.visibility.total_seconds(),
        max_attempts=group.max_attempts,
        backoff=_backoff(group.backoff),
        on_poison=group.on_poison,
        filter=FilterOut(sorted(group.tags)) if group.tags else None,
        ordered=group.is_ordered,
        max_in_flight=group.max_in_flight,
        rate_limit=_rate(group.rate_limit),
        client_ttl=group.client_ttl.total_seconds(),
        paused=group.is_paused,
        pause_reason=group.pause_reason,
        created_at=format_instant(group.created_at),
    )


def _key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        key.id,
        key.producer,
        key.group,
        key.role,
        format_instant(key.created_at),
        maybe_instant(key.expires_at),
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _rate(limit: RateLimit | None) -> RateOut | None:
    return None if limit is None else RateOut(limit.rate, limit.burst)


def _backoff(backoff: Backoff) -> BackoffOut | list[float]:
    if backoff.steps:
        return [step.total_seconds() for step in backoff.steps]
    return BackoffOut(backoff.initial.total_seconds(), backoff.factor, backoff.most.total_seconds(), backoff.jitter)
