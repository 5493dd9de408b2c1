"""POST /v1/topics/{topic}/messages: envelopes, batches, and bodies as they are."""

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mqgate.control.access.model import Principal
from mqgate.control.registry.model import Duration, Instant
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Producer
from mqgate.core.errors import EmptyBody, Forbidden, InvalidValue, MqgateError, NotSupportedYet, TooLarge
from mqgate.core.message import NO_PROPERTIES, Draft, Stored, new_id, slot_of
from mqgate.core.names import check_text
from mqgate.core.times import format_instant
from mqgate.http.errors import problem
from mqgate.http.exchange import Answer, Request, refuse, reply
from mqgate.http.json_input import decode, explain, query
from mqgate.http.native.shapes import PublishResults, StoredOut
from mqgate.http.operation import Operation
from mqgate.production.publish import Publisher
from mqgate.settings import HttpSettings

_MOST_PROPERTY_BYTES = 32 << 10
_PROPERTY = b"mqgate-property-"


class Envelope(Struct, rename="camel", forbid_unknown_fields=True):
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | None = None
    tag: str | None = None
    properties: dict[str, str] | None = None
    delay: Duration | UnsetType = UNSET
    deliver_at: Instant | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET


class PublishIn(Envelope, rename="camel", forbid_unknown_fields=True):
    messages: list[Raw] | UnsetType = UNSET


class PublishQuery(Struct, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None


_publish_in = msgspec.json.Decoder(PublishIn)
_envelope = msgspec.json.Decoder(Envelope)
_text = msgspec.json.Decoder(str)


class PublishApi:
    def __init__(self, registry: Registry, publisher: Publisher, settings: HttpSettings) -> None:
        self._registry = registry
        self._publisher = publisher
        self._settings = settings

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="publish",
                method="POST",
                path="/v1/topics/{topic}/messages",
                summary="Publish a message, or a batch",
                tag="publish",
                handler=self.publish,
                takes=PublishIn,
                takes_bytes=True,
                query=PublishQuery,
                headers={
                    "Mqgate-Key": "message key, for bodies that are not JSON",
                    "Mqgate-Tag": "message tag, for bodies that are not JSON",
                },
                answers={200: PublishResults, 201: StoredOut, 207: PublishResults},
                refusals=(404, 429, 507),
            )
        ]

    async def publish(self, request: Request) -> Answer:
        topic = self._registry.topic(request.path("topic"))
        producer = self._producer(request, topic.name)
        trace = request.headers.get(b"traceparent")
        extra = {"traceparent": trace.decode("latin-1")} if trace else NO_PROPERTIES
        if (
            not request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            == b"application/json"
        ):
            draft = self._from_headers(request, extra)
        else:
            given = decode(request.body, _publish_in)
            if given.messages is not UNSET:
                return await self._batch(topic, producer, given, extra)
            draft = self._draft(given, extra)
        (stored,) = await self._publisher.publish(topic, producer, (draft,))
        if isinstance(stored, MqgateError):
            return refuse(stored)
        return reply(201, _stored(draft.id, topic.name, stored))

    async def _batch(
        self, topic: Any, producer: Producer | None, given: PublishIn, extra: Mapping[str, str]
    ) -> Answer:
        items = given.messages
        assert items is not UNSET  # noqa: S101 - for the type checker; the caller looked
        if (
            given.body is not UNSET
            or given.body_base64 is not UNSET
            or given.key
            or given.tag
            or given.properties
        ):
            raise InvalidValue("a batch has only messages: put the rest into its items", field="messages")
        if not 1 <= len(items) <= self._settings.max_batch:
            raise InvalidValue(
                f"a batch has 1 to {self._settings.max_batch} messages",
                field="messages",
                limit=self._settings.max_batch,
            )
        drafts: list[Draft] = []
        outcomes: list[Draft | MqgateError] = []
        for index, item in enumerate(items):
            try:
                draft = self._draft(_item(item), extra)
                drafts.append(draft)
                outcomes.append(draft)
            except MqgateError as error:
                error.members["index"] = index
                outcomes.append(error)
        stored = iter(await self._publisher.publish(topic, producer, drafts) if drafts else ())
        results: list[dict[str, object]] = []
        for index, outcome in enumerate(outcomes):
            done = next(stored) if isinstance(outcome, Draft) else outcome
            if isinstance(done, MqgateError):
                document = problem(done) | {"index": index}
                results.append({"status": document["status"], "error": document})
            else:
                assert isinstance(outcome, Draft)  # noqa: S101 - for the type checker
                results.append({"status": 201, **_stored(outcome.id, topic.name, done)})
        is_whole = all(result["status"] == 201 for result in results)  # noqa: PLR2004 - created
        return reply(200 if is_whole else 207, {"results": results})

    def _producer(self, request: Request, topic: str) -> Producer | None:
        principal: Principal = request.principal
        principal.need_publish()
        name = principal.producer
        asked = query(request, PublishQuery).producer if request.scope["query_string"] else None
        if asked is not None:
            if name not in {None, asked}:
                raise Forbidden(f"this key belongs to producer {name}")
            name = asked
        if name is None:
            return None
        producer = self._registry.producer(name)
        if producer.topic != topic:
            raise Forbidden(f"producer {name} publishes to topic {producer.topic} only")
        return producer

    def _draft(self, given: Envelope, extra: Mapping[str, str]) -> Draft:
        for field, value in (("delay", given.delay), ("deliverAt", given.deliver_at)):
            if value is not UNSET:
                raise NotSupportedYet(f"{field} is not there yet: leave it out", field=field)
        if given.idempotency_key is not UNSET:
            raise NotSupportedYet("idempotencyKey is not there yet: leave it out", field="idempotencyKey")
        return self._checked(_body(given), given.key, given.tag, given.properties, extra)

    def _from_headers(self, request: Request, extra: Mapping[str, str]) -> Draft:
        for header in (b"mqgate-delay", b"mqgate-deliver-at", b"idempotency-key"):
            if header in request.headers:
                raise NotSupportedYet(
                    f"{header.decode()} is not there yet: leave it out", field=header.decode()
                )
        properties = {}
        for name in request.headers:
            if name.startswith(_PROPERTY):
                properties[name.removeprefix(_PROPERTY).decode("latin-1")] = request.header(name) or ""
        return self._checked(
            request.body, request.header(b"mqgate-key"), request.header(b"mqgate-tag"), properties, extra
        )

    def _checked(
        self,
        body: bytes,
        key: str | None,
        tag: str | None,
        properties: Mapping[str, str] | None,
        extra: Mapping[str, str],
    ) -> Draft:
        if not body:
            raise EmptyBody("a message must not be empty: RocketMQ cannot carry it", field="body")
        most = self._settings.max_message_bytes
        if len(body) > most:
            raise TooLarge(f"a message may have {most} bytes", field="body", limit=most)
        size = 0
        if key is not None:
            size += len(check_text(key, "key").encode())
        if tag is not None:
            size += len(check_text(tag, "tag").encode())
        if extra:
            properties = {**extra, **(properties or {})}
        for name, value in (properties or NO_PROPERTIES).items():
            size += len(check_text(name, "properties").encode())
            size += len(check_text(value, f"properties.{name}").encode())
        if size > _MOST_PROPERTY_BYTES:
            raise TooLarge(
                "key, tag and properties may have 32 KiB together", field="properties", limit=32 << 10
            )
        slot = None if key is None else slot_of(key)
        return Draft(new_id(time.time_ns() // 1_000_000), body, key, tag, properties or NO_PROPERTIES, slot)


def _item(raw: Raw) -> Envelope:
    # The whole batch was looked through for repeated members already.
    try:
        return _envelope.decode(raw)
    except msgspec.ValidationError as error:
        raise explain(error) from None


def _body(given: Envelope) -> bytes:
    if given.body_base64 is not UNSET:
        if given.body is not UNSET:
            raise InvalidValue("say body or bodyBase64, not both", field="body")
        try:
            return base64.b64decode(given.body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidValue(
                "bodyBase64 must be standard base64 with padding", field="bodyBase64"
            ) from None
    if given.body is UNSET:
        raise EmptyBody("a message needs body or bodyBase64", field="body")
    raw = bytes(given.body)
    if raw.lstrip()[:1] == b'"':
        return _text.decode(raw).encode()
    return msgspec.json.format(raw, indent=-1)


def _stored(message_id: str, topic: str, stored: Stored) -> dict[str, object]:
    answer: dict[str, object] = {
        "id": message_id,
        "topic": topic,
        "queue": stored.queue,
        "offset": stored.offset,
        "storedAt": format_instant(stored.stored_at),
    }
    if stored.is_degraded:
        answer["durability"] = "degraded"
    return answer
