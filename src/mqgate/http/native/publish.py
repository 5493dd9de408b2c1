"""POST /v1/topics/{topic}/messages: envelopes, batches, and bodies as they are."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mqgate.control.registry.service import Registry
from mqgate.core.entries import Producer, Topic
from mqgate.core.errors import Forbidden, InvalidJson, InvalidValue, MqgateError
from mqgate.core.message import NO_PROPERTIES
from mqgate.core.times import format_instant
from mqgate.events.recorder import EventRecorder
from mqgate.http.deep_json import split_deep_batch
from mqgate.http.errors import headers_of, problem
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import ItemSplitter, decode, query
from mqgate.http.native.envelope import Envelope, EnvelopeParser
from mqgate.http.native.schemas import PublishResults, ScheduledOut, StoredOut
from mqgate.http.operation import describe
from mqgate.production.message_writer import Item, Published
from mqgate.production.publish import Publisher
from mqgate.settings import HttpSettings

_HEADERS = {
    "Mqgate-Key": "message key, for bodies that are not JSON",
    "Mqgate-Tag": "message tag, for bodies that are not JSON",
    "Mqgate-Delay": "how long to wait before delivery, for bodies that are not JSON",
    "Mqgate-Deliver-At": "when to deliver, for bodies that are not JSON",
    "Idempotency-Key": "publish once, however often it is sent; for bodies that are not JSON",
}


# Counted before its items are decoded.
Messages = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {}, "minItems": 1})]


class PublishIn(Envelope, rename="camel", forbid_unknown_fields=True):
    messages: Messages | UnsetType = UNSET


class PublishQuery(Struct, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None


_JSON = b"application/json"
# Bytes of a batch that are decoded in one turn of the event loop.
TURN_BYTES = 1 << 20
_publish_in = msgspec.json.Decoder(PublishIn)
_NO_ENVELOPE = Envelope()


def _may_publish(request: Request) -> None:
    request.principal.need_publish()


class PublishApi:
    def __init__(
        self,
        registry: Registry,
        publisher: Publisher,
        parser: EnvelopeParser,
        recorder: EventRecorder,
        settings: HttpSettings,
    ) -> None:
        self._registry = registry
        self._publisher = publisher
        self._recorder = recorder
        self._parser = parser
        self._splitter = ItemSplitter("messages", settings.max_batch)

    @describe(
        "publish",
        "publish",
        request_type=PublishIn,
        accepts_bytes=True,
        query=PublishQuery,
        headers=_HEADERS,
        responses={
            200: (PublishResults, StoredOut, ScheduledOut),
            201: StoredOut,
            202: ScheduledOut,
            207: PublishResults,
        },
        errors=(404, 422, 429, 507),
        permit=_may_publish,
    )
    async def publish(self, request: Request) -> Response:
        """Publish a message or a batch."""
        name = request.path("topic")
        is_named = request.principal.producer is not None or request.scope["query_string"]
        producer = await self._producer(request, name) if is_named else None
        topic = self._registry.snapshot.topics.get(name) or await self._registry.topic(name)
        trace = request.headers.get(b"traceparent")
        extra = {"traceparent": trace.decode("latin-1")} if trace else NO_PROPERTIES
        try:
            item = await self._read(request, topic, extra)
            if isinstance(item, list):
                return await self._batch(topic, producer, item, extra)
            (published,) = await self._publisher.publish(topic, producer, (item,))
            if isinstance(published, MqgateError):
                raise published
        except MqgateError as error:
            self._recorder.refused(topic.name, error.code, producer=producer)
            raise
        return reply(*_answer(name, published))

    async def _read(self, request: Request, topic: Topic, extra: Mapping[str, str]) -> Item | list[bytes]:
        """Return the message of a request, or the texts of the items of a batch."""
        headers, body = request.headers, request.body
        kind = headers.get(b"content-type", b"")
        if kind != _JSON and kind.partition(b";")[0].strip().lower() != _JSON:
            return self._parser.from_headers(topic.name, request, extra)
        try:
            given = decode(body, _publish_in)
        except InvalidJson as error:
            texts = await split_deep_batch(body, error, self._splitter)
            _check_headers(headers, is_batch=True)
            return texts
        _check_headers(headers, is_batch=given.messages is not UNSET, has_key=given.idempotency_key is not None)
        if given.messages is UNSET:
            if given.idempotency_key is None and b"idempotency-key" in headers:
                given.idempotency_key = request.header(b"idempotency-key")
            return self._parser.from_envelope(topic.name, given, extra)
        if any(getattr(given, name) != getattr(_NO_ENVELOPE, name) for name in _NO_ENVELOPE.__struct_fields__):
            raise InvalidValue("a batch has only messages: put the rest into its items", field="messages")
        if len(body) > TURN_BYTES:
            await asyncio.sleep(0)
        return self._splitter.split(given.messages)

    async def _batch(
        self, topic: Topic, producer: Producer | None, texts: Sequence[bytes], extra: Mapping[str, str]
    ) -> Response:
        items, outcomes = await decode_items(texts, lambda text: self._parser.from_json(topic.name, text, extra))
        published = iter(await self._stored(topic, producer, items) if items else ())
        done = [next(published) if outcome is None else outcome for outcome in outcomes]
        for code, count in Counter(each.code for each in done if isinstance(each, MqgateError)).items():
            self._recorder.refused(topic.name, code, count, producer=producer)
        return answer_batch(topic.name, done)

    async def _stored(
        self, topic: Topic, producer: Producer | None, items: list[Item]
    ) -> list[Published | MqgateError]:
        try:
            return await self._publisher.publish(topic, producer, items)
        except MqgateError as error:
            # The first of them is told with the answer.
            self._recorder.refused(topic.name, error.code, len(items) - 1, producer=producer)
            raise

    async def _producer(self, request: Request, topic: str) -> Producer | None:
        name = request.principal.producer
        asked = query(request, PublishQuery).producer if request.scope["query_string"] else None
        if asked is not None:
            if name not in {None, asked}:
                raise Forbidden(f"this key belongs to producer {name}")
            name = asked
        if name is None:
            return None
        producer = await self._registry.producer(name)
        if producer.topic != topic:
            raise Forbidden(f"producer {name} publishes to topic {producer.topic} only")
        return producer


def _check_headers(headers: Mapping[bytes, bytes], *, is_batch: bool, has_key: bool = False) -> None:
    """Refuse headers for which a JSON body has a member: they would be ignored silently."""
    if b"mqgate-" in b" ".join(headers):
        for name in headers:
            if name.startswith(b"mqgate-"):
                field = name[:100].decode("latin-1")
                raise InvalidValue("a JSON body carries this itself: put it into the envelope", field=field)
    if b"idempotency-key" in headers and (is_batch or has_key):
        raise InvalidValue("say idempotencyKey in the envelope or the items only", field="idempotency-key")


async def decode_items(
    texts: Sequence[bytes], decode_item: Callable[[bytes], Item]
) -> tuple[list[Item], list[MqgateError | None]]:
    """Return the items that are valid, and for each text its error or None."""
    items: list[Item] = []
    errors: list[MqgateError | None] = []
    size = 0
    for text in texts:
        size += len(text)
        if size > TURN_BYTES:
            # Let other requests run between the parts of a large batch.
            size = 0
            await asyncio.sleep(0)
        try:
            items.append(decode_item(text))
            errors.append(None)
        except MqgateError as error:
            errors.append(error)
    return items, errors


def answer_batch(topic: str, done: Sequence[Published | MqgateError]) -> Response:
    """An outcome for every message of a batch, in their order."""
    results = [_result(topic, index, outcome) for index, outcome in enumerate(done)]
    failed = [each for each in done if isinstance(each, MqgateError)]
    waits = [header for each in failed for header in headers_of(each)]
    return reply(207 if failed else 200, {"results": results}, waits[:1])


def _result(topic: str, index: int, outcome: Published | MqgateError) -> dict[str, object]:
    if isinstance(outcome, MqgateError):
        document = problem(outcome) | {"index": index}
        return {"status": document["status"], "error": document}
    status, answer = _answer(topic, outcome)
    return {"status": status, **answer}


def _answer(topic: str, published: Published) -> tuple[int, dict[str, object]]:
    message_id, stored, due, is_duplicate = published
    answer: dict[str, object]
    status = 201
    if stored is not None:
        queue, offset, stored_at, is_degraded = stored
        at = format_instant(stored_at)
        answer = {"id": message_id, "topic": topic, "queue": queue, "offset": offset, "storedAt": at}
        if is_degraded:
            answer["durability"] = "degraded"
    elif due is not None:
        status = 202
        answer = {"id": message_id, "topic": topic, "deliverAt": format_instant(due)}
    else:
        answer = {"id": message_id, "topic": topic}
    if is_duplicate:
        status = 200
        answer["duplicate"] = True
    return status, answer
