"""Handlers that replay messages: they are stored again under their original ids.

A replay to a topic reaches all of its groups. A replay to a group is stored in the private log of that group. An item
has the form in which a queue read returns it. An item with an idempotency key is stored once, even if sent repeatedly.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mqgate.consumption.group_log import private_queue, redriven
from mqgate.control.registry.model import Instant
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode, Topic
from mqgate.core.errors import InvalidJson, InvalidValue, MqgateError, UnsupportedByMode
from mqgate.core.message import END_OF_OFFSETS, NO_PROPERTIES, Message, milliseconds
from mqgate.core.names import is_name, retry_topic
from mqgate.core.times import parse_instant
from mqgate.http.deep_json import split_deep_batch
from mqgate.http.exchange import Request, Response
from mqgate.http.json_input import ItemSplitter, decode
from mqgate.http.lookup import requested_group
from mqgate.http.native.envelope import Envelope, EnvelopeParser, Properties
from mqgate.http.native.publish import Messages, batch_response, decode_items
from mqgate.http.native.schemas import PublishResults
from mqgate.http.operation import describe
from mqgate.ports.message_log import MessageLog
from mqgate.production.message_writer import Item, Published
from mqgate.production.service import ProductionService
from mqgate.settings import HttpSettings

_MAX_ID_LENGTH = 128
_MAX_QUEUE_NAME = 255


class ReplayMessage(Struct, rename="camel", forbid_unknown_fields=True):
    """A message and its origin. The origin is required for a replay to a group only."""

    id: str
    topic: str | None = None
    queue: str | None = None
    offset: int | None = None
    key: str | None = None
    tag: str | None = None
    properties: Properties | UnsetType = UNSET
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    stored_at: Instant | None = None
    idempotency_key: str | None = None


class ReplayIn(Struct, rename="camel", forbid_unknown_fields=True):
    messages: Messages


_replay_in = msgspec.json.Decoder(ReplayIn)
_message = msgspec.json.Decoder(ReplayMessage)


class ReplayApi:
    """Stores messages again. `changed` is awaited after a message was added to the private log of a group."""

    def __init__(
        self,
        *,
        registry: Registry,
        log: MessageLog,
        service: ProductionService,
        parser: EnvelopeParser,
        settings: HttpSettings,
        changed: Callable[[Group], Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._log = log
        self._service = service
        self._parser = parser
        self._splitter = ItemSplitter("messages", settings.max_batch)
        self._changed = changed

    @describe(
        "replayToTopic",
        "operate",
        request_type=ReplayIn,
        responses={200: PublishResults, 207: PublishResults},
        errors=(404, 422, 507),
    )
    async def to_topic(self, request: Request) -> Response:
        """Replay messages to a topic."""
        topic = await self._registry.topic(request.path("topic"))
        done = await self._replay(request, topic, f"topic {topic.name}", lambda _, item: item)
        return batch_response(topic.name, done)

    @describe(
        "replayToGroup",
        "operate",
        request_type=ReplayIn,
        responses={200: PublishResults, 207: PublishResults},
        errors=(404, 422, 507),
    )
    async def to_group(self, request: Request) -> Response:
        """Replay messages to one group."""
        group = await requested_group(request, self._registry)
        if group.mode is Mode.BROADCAST:
            raise UnsupportedByMode("A replayed message would reach every client of a broadcast group.")
        topic = await self._registry.topic(group.topic)
        private = replace(topic, name=retry_topic(group.name), queues=1)
        await self._log.create(private.name, private.queues, is_per_broker=True)
        done = await self._replay(request, private, f"group {group.name}", _with_origin)
        await self._changed(group)
        return batch_response(topic.name, [_with_private_queue(outcome) for outcome in done])

    async def _replay(
        self, request: Request, topic: Topic, target: str, prepare: Callable[[ReplayMessage, Item], Item]
    ) -> list[Published | MqgateError]:
        try:
            texts = self._splitter.split(decode(request.body, _replay_in).messages)
        except InvalidJson as error:
            texts = await split_deep_batch(request.body, error, self._splitter)

        def item_of(text: bytes) -> Item:
            given = decode(text, _message)
            return prepare(given, self._item(topic.name, given))

        done = await self._service.replay(topic, await decode_items(texts, item_of))
        count = sum(isinstance(outcome, Published) and not outcome.is_duplicate for outcome in done)
        if count:
            await self._registry.record(request.principal.name, "replay", target, None, {"messages": count})
        return done

    def _item(self, topic: str, given: ReplayMessage) -> Item:
        """Return the message as an item to store, validated like a published one."""
        if not 1 <= len(given.id) <= _MAX_ID_LENGTH or not given.id.isascii() or not given.id.isprintable():
            raise InvalidValue(
                f"id must have 1 to {_MAX_ID_LENGTH} printable characters", field="id", limit=_MAX_ID_LENGTH
            )
        envelope = Envelope(
            body=given.body,
            body_base64=given.body_base64,
            key=given.key,
            tag=given.tag,
            properties=given.properties,
            idempotency_key=given.idempotency_key,
        )
        item = self._parser.from_envelope(topic, envelope, NO_PROPERTIES)
        return item._replace(draft=item.draft._replace(id=given.id))


def _with_origin(given: ReplayMessage, item: Item) -> Item:
    """Return an item that carries the origin of its message, which consumers receive."""
    for field in ("topic", "queue", "offset", "stored_at"):
        if getattr(given, field) is None:
            name = "storedAt" if field == "stored_at" else field
            raise InvalidValue(f"{name} is required: send the value that a queue read returned.", field=name)
    _check_origin(given)
    draft = item.draft
    origin = str(given.topic), str(given.queue), int(given.offset or 0)
    stored_ms = milliseconds(parse_instant(given.stored_at or 0, "storedAt"))
    message = Message(draft.id, *origin, draft.body, draft.key, draft.tag, draft.properties, stored_ms)
    return item._replace(draft=redriven(message))


def _check_origin(given: ReplayMessage) -> None:
    """Raise InvalidValue for an origin that cannot be stored in a dead letter. It would block the group later."""
    if not is_name(given.topic or ""):
        raise InvalidValue("topic must be the name of a topic", field="topic")
    queue = given.queue or ""
    if not 1 <= len(queue) <= _MAX_QUEUE_NAME or not queue.isprintable():
        raise InvalidValue("queue must be the name of a queue", field="queue")
    if not 0 <= (given.offset or 0) < END_OF_OFFSETS:
        raise InvalidValue(f"offset must be 0 to {END_OF_OFFSETS - 1}", field="offset")


def _with_private_queue(outcome: Published | MqgateError) -> Published | MqgateError:
    """Return the outcome with the queue name that consumers see."""
    if isinstance(outcome, MqgateError) or outcome.stored is None:
        return outcome
    return outcome._replace(stored=outcome.stored._replace(queue=private_queue(outcome.stored.queue)))
