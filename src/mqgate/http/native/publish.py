"""POST /v1/topics/{topic}/messages: envelopes, batches, and bodies as they are."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mqgate.control.registry.service import Registry
from mqgate.core.entries import Producer, Topic
from mqgate.core.errors import Forbidden, InvalidValue, MqgateError
from mqgate.core.message import NO_PROPERTIES
from mqgate.core.times import format_instant
from mqgate.http.errors import headers_of, problem
from mqgate.http.exchange import Answer, Request, reply
from mqgate.http.json_input import decode_outside, query, refuse_repeats
from mqgate.http.native.envelope import Envelope, Reader
from mqgate.http.native.shapes import PublishResults, ScheduledOut, StoredOut
from mqgate.http.operation import Operation
from mqgate.production.publish import Publisher
from mqgate.production.store import Item, Published
from mqgate.telemetry.recorder import Recorder

_HEADERS = {
    "Mqgate-Key": "message key, for bodies that are not JSON",
    "Mqgate-Tag": "message tag, for bodies that are not JSON",
    "Mqgate-Delay": "how long to wait before delivery, for bodies that are not JSON",
    "Mqgate-Deliver-At": "when to deliver, for bodies that are not JSON",
    "Idempotency-Key": "publish once, however often it is sent; for bodies that are not JSON",
}


class PublishIn(Envelope, rename="camel", forbid_unknown_fields=True):
    messages: list[Raw] | UnsetType = UNSET


class PublishQuery(Struct, rename="camel", forbid_unknown_fields=True):
    producer: str | None = None


_publish_in = msgspec.json.Decoder(PublishIn)
_NO_ENVELOPE = Envelope()


class PublishApi:
    def __init__(self, registry: Registry, publisher: Publisher, reader: Reader, recorder: Recorder, most: int) -> None:
        self._registry = registry
        self._publisher = publisher
        self._recorder = recorder
        self._reader = reader
        self._most = most

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
                headers=_HEADERS,
                answers={
                    200: (PublishResults, StoredOut, ScheduledOut),
                    201: StoredOut,
                    202: ScheduledOut,
                    207: PublishResults,
                },
                refusals=(404, 422, 429, 507),
            )
        ]

    async def publish(self, request: Request) -> Answer:
        producer = await self._producer(request, request.path("topic"))
        topic = await self._registry.topic(request.path("topic"))
        try:
            return await self._publish(request, topic, producer)
        except MqgateError as error:
            self._recorder.refused(topic.name, error.code, producer=producer)
            raise

    async def _publish(self, request: Request, topic: Topic, producer: Producer | None) -> Answer:
        trace = request.headers.get(b"traceparent")
        extra = {"traceparent": trace.decode("latin-1")} if trace else NO_PROPERTIES
        if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            item = self._reader.from_headers(topic.name, request, extra)
        else:
            given = decode_outside(request.body, _publish_in)
            _refuse_headers(request, given)
            if given.messages is not UNSET:
                # Each item is looked at on its own; of the rest, only `messages` itself could be repeated.
                if request.body.count(b'"messages"') > 1:
                    refuse_repeats(request.body)
                return await self._batch(topic, producer, given, extra)
            refuse_repeats(request.body)
            if given.idempotency_key is None:
                given.idempotency_key = request.header(b"idempotency-key")
            item = self._reader.from_envelope(topic.name, given, extra)
        (published,) = await self._publisher.publish(topic, producer, (item,))
        if isinstance(published, MqgateError):
            raise published
        return reply(*_answer(topic.name, published))

    async def _batch(
        self, topic: Topic, producer: Producer | None, given: PublishIn, extra: Mapping[str, str]
    ) -> Answer:
        raws = given.messages
        assert raws is not UNSET  # noqa: S101 - for the type checker; the caller looked
        if any(getattr(given, name) != getattr(_NO_ENVELOPE, name) for name in _NO_ENVELOPE.__struct_fields__):
            raise InvalidValue("a batch has only messages: put the rest into its items", field="messages")
        if not 1 <= len(raws) <= self._most:
            raise InvalidValue(f"a batch has 1 to {self._most} messages", field="messages", limit=self._most)
        items: list[Item] = []
        outcomes: list[Published | MqgateError | None] = []
        for raw in raws:
            try:
                items.append(self._reader.from_raw(topic.name, raw, extra))
                outcomes.append(None)
            except MqgateError as error:
                outcomes.append(error)
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
        principal = request.principal
        principal.need_publish()
        name = principal.producer
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


def _refuse_headers(request: Request, given: PublishIn) -> None:
    """What a JSON body has a member for is not taken from a header as well, and never ignored."""
    for name in request.headers:
        if name.startswith(b"mqgate-"):
            raise InvalidValue(
                "a JSON body carries this itself: put it into the envelope", field=name.decode("latin-1")
            )
    if b"idempotency-key" in request.headers and (given.messages is not UNSET or given.idempotency_key is not None):
        raise InvalidValue("say idempotencyKey in the envelope or the items only", field="idempotency-key")


def answer_batch(topic: str, done: Sequence[Published | MqgateError]) -> Answer:
    """An outcome for every message of a batch, in their order."""
    results = [_result(topic, index, outcome) for index, outcome in enumerate(done)]
    is_whole = not any("error" in result for result in results)
    waits = [header for each in done if isinstance(each, MqgateError) for header in headers_of(each)]
    return reply(200 if is_whole else 207, {"results": results}, waits[:1])


def _result(topic: str, index: int, outcome: Published | MqgateError) -> dict[str, object]:
    if isinstance(outcome, MqgateError):
        document = problem(outcome) | {"index": index}
        return {"status": document["status"], "error": document}
    status, answer = _answer(topic, outcome)
    return {"status": status, **answer}


def _answer(topic: str, published: Published) -> tuple[int, dict[str, object]]:
    answer: dict[str, object] = {"id": published.id, "topic": topic}
    status = 201
    if published.stored is not None:
        stored = published.stored
        answer |= {
            "queue": stored.queue,
            "offset": stored.offset,
            "storedAt": format_instant(stored.stored_at),
        }
        if stored.is_degraded:
            answer["durability"] = "degraded"
    elif published.due is not None:
        status = 202
        answer["deliverAt"] = format_instant(published.due)
    if published.is_duplicate:
        status = 200
        answer["duplicate"] = True
    return status, answer
