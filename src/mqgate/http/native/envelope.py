"""Parsing and validation of published messages: a JSON envelope, or a raw body with headers."""

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mqgate.control.registry.model import Duration, Instant
from mqgate.core.errors import EmptyBody, InvalidJson, InvalidValue, TooLarge, UnknownField
from mqgate.core.message import NO_PROPERTIES, Draft, new_id, slot_of
from mqgate.core.names import MAX_PROPERTY_BYTES, OWN_PREFIX, check_text
from mqgate.core.times import parse_duration, parse_instant
from mqgate.delay.plan import plan
from mqgate.http.exchange import Request
from mqgate.http.json_input import decode
from mqgate.production.idempotency import derived_id
from mqgate.production.message_writer import Item

# RocketMQ stores two separators with every property.
_SEPARATORS = 2
_MAX_KEY_LENGTH = 256
_MAX_QUOTED = 100
_PROPERTY = b"mqgate-property-"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEADERS = {b"mqgate-key", b"mqgate-tag", b"mqgate-delay", b"mqgate-deliver-at", b"idempotency-key"}


# Decoded only if it is small enough: a request can hold millions of properties.
Properties = Annotated[
    Raw,
    Meta(
        extra_json_schema={"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "null"}]}
    ),
]


class Envelope(Struct, rename="camel", forbid_unknown_fields=True):
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | None = None
    tag: str | None = None
    properties: Properties | UnsetType = UNSET
    delay: Duration | None = None
    deliver_at: Instant | None = None
    idempotency_key: str | None = None


_envelope = msgspec.json.Decoder(Envelope)
_text = msgspec.json.Decoder(str)
_properties = msgspec.json.Decoder(dict[str, str] | None)
# A character of a JSON string takes up to six bytes: \u0041.
_ESCAPED = 6
# JSON values are stored without white space. A text longer than this multiple of the limit is refused unread.
_MAX_SPACING = 2


class EnvelopeParser:
    """Parses envelopes and requests into items to publish."""

    def __init__(self, *, max_message_bytes: int, longest_delay: timedelta, clock: Callable[[], datetime]) -> None:
        self._max_message_bytes = max_message_bytes
        self._longest_delay = longest_delay
        self._clock = clock

    def from_envelope(self, topic: str, given: Envelope, extra: Mapping[str, str]) -> Item:
        properties = NO_PROPERTIES if given.properties is UNSET else _decode_properties(given.properties)
        return self._item(topic, self._body(given), given, {**extra, **properties} if extra else properties)

    def from_json(self, topic: str, text: bytes, extra: Mapping[str, str]) -> Item:
        """Return an item of a batch. Its faults do not affect the other items."""
        return self.from_envelope(topic, decode(text, _envelope), extra)

    def from_headers(self, topic: str, request: Request, extra: Mapping[str, str]) -> Item:
        properties = dict(extra)
        _check_headers(request)
        for name in request.headers:
            if name.startswith(_PROPERTY):
                properties[name.removeprefix(_PROPERTY).decode("latin-1")] = request.header(name) or ""
        given = Envelope(
            key=request.header(b"mqgate-key"),
            tag=request.header(b"mqgate-tag"),
            delay=_number(request.header(b"mqgate-delay")),
            deliver_at=_whole(request.header(b"mqgate-deliver-at")),
            idempotency_key=request.header(b"idempotency-key"),
        )
        return self._item(topic, request.body, given, properties)

    def _item(self, topic: str, body: bytes, given: Envelope, properties: Mapping[str, str]) -> Item:
        if not body:
            raise EmptyBody("The message is empty. Send a body of at least one byte.", field="body")
        if len(body) > self._max_message_bytes:
            raise self._too_large()
        key, tag, idempotency_key = given.key, given.tag, given.idempotency_key
        if properties or key is not None or tag is not None:
            _check(key, tag, properties)
        if idempotency_key is not None and not (
            1 <= len(idempotency_key) <= _MAX_KEY_LENGTH and idempotency_key.isprintable()
        ):
            raise InvalidValue(
                f"idempotencyKey must have 1 to {_MAX_KEY_LENGTH} printable characters.",
                field="idempotencyKey",
                limit=_MAX_KEY_LENGTH,
            )
        due = None
        if given.delay is not None or given.deliver_at is not None:
            delay = None if given.delay is None else parse_duration(given.delay, "delay")
            at = None if given.deliver_at is None else parse_instant(given.deliver_at, "deliverAt")
            due = plan(delay, at, self._clock(), self._longest_delay)
        if idempotency_key is None:
            message_id = new_id(time.time_ns() // 1_000_000)
        else:
            message_id = derived_id(topic, idempotency_key, body)
        slot = None if key is None else slot_of(key)
        # Faster than keyword arguments; a batch creates a hundred of each.
        draft = tuple.__new__(Draft, (message_id, body, key, tag, properties, slot))
        return tuple.__new__(Item, (draft, due, idempotency_key))

    def _body(self, given: Envelope) -> bytes:
        if given.body_base64 is not UNSET:
            if given.body is not UNSET:
                raise InvalidValue("Provide either body or bodyBase64.", field="body")
            try:
                return base64.b64decode(given.body_base64, validate=True)
            except (binascii.Error, ValueError):
                raise InvalidValue("bodyBase64 must be standard base64 with padding.", field="bodyBase64") from None
        if given.body is UNSET:
            raise EmptyBody("Provide body or bodyBase64.", field="body")
        raw = bytes(given.body)
        is_text = raw[:1] == b'"'
        if len(raw) > (_ESCAPED if is_text else _MAX_SPACING) * self._max_message_bytes:
            raise self._too_large()
        try:
            if is_text:
                return _text.decode(raw).encode()
            compact = msgspec.json.format(raw, indent=-1)
            # The formatter does not check the encoding of strings.
            compact.decode()
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidJson(f"Correct the JSON: {error}", field="body") from None
        except RecursionError:
            raise InvalidJson("The body is nested too deeply. Use fewer levels.", field="body") from None
        return compact

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"A message may have at most {self._max_message_bytes} bytes.", field="body", limit=self._max_message_bytes
        )


def _check_headers(request: Request) -> None:
    """Raise for unknown or repeated Mqgate headers. Ignoring them would change the message silently."""
    seen = set()
    for header, _ in request.scope["headers"]:
        if not header.startswith(b"mqgate-") and header != b"idempotency-key":
            continue
        name = header[:_MAX_QUOTED].decode("latin-1")
        if not header.startswith(_PROPERTY) and header not in _HEADERS:
            raise UnknownField(f"{name} is unknown. Remove it or check its spelling.", field=name)
        if header in seen:
            raise InvalidValue(f"{name} was sent more than once. Send it once.", field=name)
        seen.add(header)


def _check(key: str | None, tag: str | None, properties: Mapping[str, str]) -> None:
    size = 0
    if key is not None:
        size += len(check_text(key, "key").encode())
    if tag is not None:
        size += len(check_text(tag, "tag").encode())
    for name, value in properties.items():
        if name.startswith(OWN_PREFIX):
            raise InvalidValue(f"Property names must not begin with {OWN_PREFIX}. It is reserved.", field="properties")
        size += len(check_text(name, "properties").encode())
        size += len(check_text(value, f"properties.{name}").encode()) + _SEPARATORS
    if size > MAX_PROPERTY_BYTES:
        raise _too_many_properties()


def _decode_properties(raw: Raw) -> Mapping[str, str]:
    if memoryview(raw).nbytes > _ESCAPED * MAX_PROPERTY_BYTES:
        raise _too_many_properties()
    try:
        return _properties.decode(raw) or NO_PROPERTIES
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidValue("properties must be an object whose values are strings.", field="properties") from None


def _too_many_properties() -> TooLarge:
    return TooLarge("key, tag and properties exceed 30 KiB together.", field="properties", limit=MAX_PROPERTY_BYTES)


def _number(text: str | None) -> float | str | None:
    """Return a duration header; a JSON number is a number of seconds."""
    return float(text) if text is not None and _NUMBER.fullmatch(text) else text


def _whole(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else text  # noqa: PLR2004 - longer numbers are no instants
