"""Handlers for topics, producers, groups and API keys."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from mqgate.control.access.keys import ApiKeys, KeySpec
from mqgate.control.access.permissions import Grant
from mqgate.control.registry.model import GroupSpec, Instant, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.backoff import Backoff
from mqgate.core.cursors import invalid_cursor
from mqgate.core.entries import ApiKey, Group, Producer, RateLimit, Topic
from mqgate.core.errors import Forbidden, InvalidValue
from mqgate.core.names import is_name
from mqgate.core.times import format_instant, parse_instant
from mqgate.http.conditions import must_be_new
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.lookup import requested_group
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe
from mqgate.ports.directory import Directory

MAX_ITEMS = 1_000
_T = TypeVar("_T")


class TopicOut(Struct, rename="camel"):
    name: str
    queues: int
    retention: float | None
    retention_bytes: int | None
    created_at: str
    team: str | None


class RateOut(Struct, rename="camel"):
    rate: float
    burst: float


class ProducerOut(Struct, rename="camel"):
    name: str
    topic: str
    rate_limit: RateOut | None
    created_at: str
    team: str | None


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
    team: str | None


class KeyIn(Struct, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None
    group: str | None = None
    role: Literal["metrics", "viewer", "reader", "operator", "admin"] | None = None
    name: str | None = None
    owner: str | None = None
    expires_at: Instant | None = None


class NewKeyOut(Struct, rename="camel"):
    id: str
    key: str


class KeyOut(Struct, rename="camel"):
    id: str
    name: str
    owner: str | None
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
    def __init__(self, registry: Registry, keys: ApiKeys, directory: Directory) -> None:
        self._registry = registry
        self._keys = keys
        self._directory = directory

    @describe(
        "putTopic",
        "registry",
        request_type=TopicSpec,
        responses={200: TopicOut, 201: TopicOut},
        errors=(404, 409, 412, 507),
        is_body_optional=True,
    )
    async def put_topic(self, request: Request) -> Response:
        """Register or change a topic."""
        spec = decode(request.body, _topic_in) if request.body else TopicSpec()
        topic, is_new = await self._registry.put_topic(
            request.path("topic"), spec, request.principal.name, only_new=must_be_new(request)
        )
        return reply(201 if is_new else 200, topic_out(topic))

    @describe("getTopic", "registry", responses={200: TopicOut}, errors=(404,))
    async def get_topic(self, request: Request) -> Response:
        """Show a topic."""
        return reply(200, topic_out(await self._registry.topic(request.path("topic"))))

    @describe("deleteTopic", "registry", responses={204: None}, errors=(404, 409, 507))
    async def delete_topic(self, request: Request) -> Response:
        """Delete a topic."""
        await self._registry.delete_topic(request.path("topic"), request.principal.name)
        return Response(204)

    @describe("listTopics", "registry", query=ListQuery, responses={200: Topics})
    async def list_topics(self, request: Request) -> Response:
        """List topics."""
        return page(request, self._directory.snapshot.topics, topic_out)

    @describe(
        "putProducer",
        "registry",
        request_type=ProducerSpec,
        responses={200: ProducerOut, 201: ProducerOut},
        errors=(404, 409, 412, 507),
    )
    async def put_producer(self, request: Request) -> Response:
        """Register or change a producer."""
        spec = decode(request.body, _producer_in)
        if request.grant is Grant.LIMITS:
            await self._registry.producer(request.path("producer"))
            _check_limits_only(spec)
        producer, is_new = await self._registry.put_producer(
            request.path("producer"), spec, request.principal.name, only_new=must_be_new(request)
        )
        return reply(201 if is_new else 200, producer_out(producer))

    @describe("getProducer", "registry", responses={200: ProducerOut}, errors=(404,))
    async def get_producer(self, request: Request) -> Response:
        """Show a producer."""
        return reply(200, producer_out(await self._registry.producer(request.path("producer"))))

    @describe("deleteProducer", "registry", responses={204: None}, errors=(404, 409, 507))
    async def delete_producer(self, request: Request) -> Response:
        """Delete a producer."""
        await self._registry.delete_producer(request.path("producer"), request.principal.name)
        return Response(204)

    @describe("listProducers", "registry", query=ListQuery, responses={200: Producers})
    async def list_producers(self, request: Request) -> Response:
        """List producers."""
        return page(request, self._directory.snapshot.producers, producer_out)

    @describe(
        "putGroup",
        "registry",
        request_type=GroupSpec,
        responses={200: GroupOut, 201: GroupOut},
        errors=(404, 409, 412, 507),
    )
    async def put_group(self, request: Request) -> Response:
        """Register or change a group."""
        spec = decode(request.body, _group_in)
        group, is_new = await self._registry.put_group(
            request.path("group"), spec, request.principal.name, only_new=must_be_new(request)
        )
        return reply(201 if is_new else 200, group_out(group))

    @describe("patchGroup", "registry", request_type=GroupSpec, responses={200: GroupOut}, errors=(404, 409, 507))
    async def patch_group(self, request: Request) -> Response:
        """Change the settings of a group."""
        spec = decode(request.body, _group_in)
        if request.grant is Grant.LIMITS:
            _check_limits_only(spec)
        group = await self._registry.patch_group(request.path("group"), spec, request.principal.name)
        return reply(200, group_out(group))

    @describe("getGroup", "registry", responses={200: GroupOut}, errors=(404,))
    async def get_group(self, request: Request) -> Response:
        """Show a group."""
        return reply(200, group_out(await requested_group(request, self._registry)))

    @describe("deleteGroup", "registry", responses={204: None}, errors=(404, 409, 507))
    async def delete_group(self, request: Request) -> Response:
        """Delete a group."""
        await self._registry.delete_group(request.path("group"), request.principal.name)
        return Response(204)

    @describe("listGroups", "registry", query=ListQuery, responses={200: Groups})
    async def list_groups(self, request: Request) -> Response:
        """List groups."""
        return page(request, self._directory.snapshot.groups, group_out)

    @describe("createKey", "registry", request_type=KeyIn, responses={201: NewKeyOut}, errors=(404, 409, 507))
    async def create_key(self, request: Request) -> Response:
        """Create an API key; its text is returned only once."""
        given = decode(request.body, _key_in)
        spec = KeySpec(
            producer=given.producer,
            group=given.group,
            role=given.role,
            name=given.name,
            owner=given.owner or request.principal.account,
            expires_at=None if given.expires_at is None else parse_instant(given.expires_at, "expiresAt"),
        )
        key, text = await self._keys.create(spec, request.principal.name)
        return reply(201, NewKeyOut(key.id, text))

    @describe("listKeys", "registry", query=ListQuery, responses={200: Keys})
    async def list_keys(self, request: Request) -> Response:
        """List API keys without their texts."""
        return page(request, self._directory.snapshot.keys, _key_out)

    @describe("deleteKey", "registry", responses={204: None}, errors=(404, 409, 507))
    async def delete_key(self, request: Request) -> Response:
        """Delete an API key."""
        await self._keys.delete(request.path("key"), request.principal.name)
        return Response(204)


def _check_limits_only(spec: ProducerSpec | GroupSpec) -> None:
    """Raise Forbidden if a caller that may change limits changes another setting."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(spec)}
    for name, wire_name in names.items():
        if getattr(spec, name) is not msgspec.UNSET and name not in {"rate_limit", "max_in_flight"}:
            raise Forbidden(f"An operator may change rateLimit and maxInFlight only. Remove {wire_name}.")


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_ITEMS:
        raise InvalidValue(f"limit must be 1 to {MAX_ITEMS}", field="limit", limit=MAX_ITEMS)
    return limit


def page(
    request: Request,
    entries: Mapping[str, _T],
    render: Callable[[_T], Any],
    is_valid_name: Callable[[str], bool] = is_name,
) -> Response:
    """Return a page of entries, sorted by name. The cursor is the last name of the previous page."""
    requested = query(request, ListQuery)
    limit = check_limit(requested.limit)
    if requested.cursor is not None and not is_valid_name(requested.cursor):
        raise invalid_cursor()
    names = sorted(name for name in entries if requested.cursor is None or name > requested.cursor)
    next_cursor = names[limit - 1] if len(names) > limit else None
    return reply(200, {"items": [render(entries[name]) for name in names[:limit]], "next": next_cursor})


def topic_out(topic: Topic) -> TopicOut:
    return TopicOut(
        topic.name,
        topic.queues,
        _seconds(topic.retention),
        topic.retention_bytes,
        format_instant(topic.created_at),
        topic.team,
    )


def producer_out(producer: Producer) -> ProducerOut:
    return ProducerOut(
        producer.name, producer.topic, _rate(producer.rate_limit), format_instant(producer.created_at), producer.team
    )


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
        team=group.team,
    )


def _key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        key.id,
        key.name,
        key.owner,
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
    return BackoffOut(
        backoff.initial.total_seconds(), backoff.factor, backoff.max_delay.total_seconds(), backoff.jitter
    )
