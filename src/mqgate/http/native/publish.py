"""POST /v1/topics/{topic}/messages: a JSON envelope, a batch of them, or a raw body."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mqgate.core.errors import Forbidden, InvalidJson, InvalidValue, MqgateError, UnknownField
from mqgate.core.message import NO_PROPERTIES
from mqgate.core.times import format_instant
from mqgate.http.deep_json import split_deep_batch
from mqgate.http.errors import headers_of, problem
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import ItemSplitter, decode, query
from mqgate.http.native.envelope import Envelope, EnvelopeParser
from mqgate.http.native.envelope_advice import FORM, advise, refuse_envelope_as_form
from mqgate.http.native.schemas import PublishResults, ScheduledOut, StoredOut
from mqgate.http.operation import describe
from mqgate.production.message_writer import Item, Published
from mqgate.production.service import ProductionService
from mqgate.settings import HttpSettings

_HEADERS = {
    "Mqgate-Key": "message key, for bodies that are not JSON",
    "Mqgate-Tag": "message tag, for bodies that are not JSON",
    "Mqgate-Delay": "delay before delivery, for bodies that are not JSON",
    "Mqgate-Deliver-At": "time of delivery, for bodies that are not JSON",
    "Idempotency-Key": "store the message once per key, for bodies that are not JSON",
}


# The items are counted before they are decoded.
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


class PublishApi:
    def __init__(self, service: ProductionService, parser: EnvelopeParser, settings: HttpSettings) -> None:
        self._service = service
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
    )
    async def publish(self, request: Request) -> Response:
        """Publish a message or a batch."""
        topic = request.path("topic")
        is_named = request.principal.producer is not None or request.scope["query_string"]
        producer = _producer(request) if is_named else None
        trace = request.headers.get(b"traceparent")
        extra = {"traceparent": trace.decode("latin-1")} if trace else NO_PROPERTIES
        decoded: Item | list[bytes] | MqgateError
        try:
            decoded = await self._read(request, topic, extra)
        except MqgateError as error:
            decoded = error
        if isinstance(decoded, list):
            messages = await decode_items(decoded, lambda text: self._parser.from_json(topic, text, extra))
            return batch_response(topic, await self._service.publish(topic, producer, messages))
        (outcome,) = await self._service.publish(topic, producer, (decoded,))
        if isinstance(outcome, MqgateError):
            raise outcome
        return reply(*_rendered(topic, outcome))

    async def _read(self, request: Request, topic: str, extra: Mapping[str, str]) -> Item | list[bytes]:
        """Return the message of a request, or the texts of the items of a batch."""
        headers, body = request.headers, request.body
        kind = headers.get(b"content-type", b"")
        if kind != _JSON and (media_type := kind.partition(b";")[0].strip().lower()) != _JSON:
            if media_type == FORM:
                refuse_envelope_as_form(body)
            return self._parser.from_headers(topic, request, extra)
        try:
            given = decode(body, _publish_in)
        except UnknownField as error:
            raise advise(error, body) from None
        except InvalidJson as error:
            texts = await split_deep_batch(body, error, self._splitter)
            _check_headers(headers, is_batch=True)
            return texts
        _check_headers(headers, is_batch=given.messages is not UNSET, has_key=given.idempotency_key is not None)
        if given.messages is UNSET:
            if given.idempotency_key is None and b"idempotency-key" in headers:
                given.idempotency_key = request.header(b"idempotency-key")
            return self._parser.from_envelope(topic, given, extra)
        if any(getattr(given, name) != getattr(_NO_ENVELOPE, name) for name in _NO_ENVELOPE.__struct_fields__):
            raise InvalidValue("A batch has only messages. Put other members into its items.", field="messages")
        if len(body) > TURN_BYTES:
            await asyncio.sleep(0)
        return self._splitter.split(given.messages)


def _producer(request: Request) -> str | None:
    """Return the producer of the API key, or the one named in the query."""
    name = request.principal.producer
    requested = query(request, PublishQuery).producer if request.scope["query_string"] else None
    if requested is None:
        return name
    if name not in {None, requested}:
        raise Forbidden(f"this key belongs to producer {name}")
    return requested


def _check_headers(headers: Mapping[bytes, bytes], *, is_batch: bool, has_key: bool = False) -> None:
    """Refuse headers for which a JSON body has a member. They would be ignored silently."""
    if b"mqgate-" in b" ".join(headers):
        for name in headers:
            if name.startswith(b"mqgate-"):
                field = name[:100].decode("latin-1")
                raise InvalidValue(
                    "A JSON request has a member for this. Put the value into the envelope.", field=field
                )
    if b"idempotency-key" in headers and (is_batch or has_key):
        raise InvalidValue("Set idempotencyKey in the envelope or in the items only.", field="idempotency-key")


async def decode_items(texts: Sequence[bytes], decode_item: Callable[[bytes], Item]) -> list[Item | MqgateError]:
    """Return for each text its message, or the error of an invalid text."""
    items: list[Item | MqgateError] = []
    size = 0
    for text in texts:
        size += len(text)
        if size > TURN_BYTES:
            # Let other requests run between the parts of a large batch.
            size = 0
            await asyncio.sleep(0)
        try:
            items.append(decode_item(text))
        except MqgateError as error:
            items.append(error)
    return items


def batch_response(topic: str, outcomes: Sequence[Published | MqgateError]) -> Response:
    """Return a response with the outcome of every message of a batch, in their order."""
    results = [_result(topic, index, outcome) for index, outcome in enumerate(outcomes)]
    errors = [outcome for outcome in outcomes if isinstance(outcome, MqgateError)]
    waits = [header for error in errors for header in headers_of(error)]
    return reply(207 if errors else 200, {"results": results}, waits[:1])


def _result(topic: str, index: int, outcome: Published | MqgateError) -> dict[str, object]:
    if isinstance(outcome, MqgateError):
        document = problem(outcome) | {"index": index}
        return {"status": document["status"], "error": document}
    status, content = _rendered(topic, outcome)
    return {"status": status, **content}


def _rendered(topic: str, published: Published) -> tuple[int, dict[str, object]]:
    """Return the HTTP status and the JSON object of a published message."""
    message_id, stored, due, is_duplicate = published
    content: dict[str, object]
    status = 201
    if stored is not None:
        queue, offset, stored_at, is_degraded = stored
        at = format_instant(stored_at)
        content = {"id": message_id, "topic": topic, "queue": queue, "offset": offset, "storedAt": at}
        if is_degraded:
            content["durability"] = "degraded"
    elif due is not None:
        status = 202
        content = {"id": message_id, "topic": topic, "deliverAt": format_instant(due)}
    else:
        content = {"id": message_id, "topic": topic}
    if is_duplicate:
        status = 200
        content["duplicate"] = True
    return status, content
