"""A message as people send it: an envelope, or a bare body with headers; checked once, here."""

import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mqgate.control.registry.model import Duration, Instant
from mqgate.core.errors import EmptyBody, InvalidJson, InvalidValue, TooLarge, UnknownField
from mqgate.core.message import NO_PROPERTIES, Draft, new_id, slot_of
from mqgate.core.names import MOST_PROPERTY_BYTES, OWN_PREFIX, check_text
from mqgate.core.times import parse_duration, parse_instant
from mqgate.delay.plan import plan
from mqgate.http.exchange import Request
from mqgate.http.json_input import decode_outside, refuse_repeats
from mqgate.production.once import derived_id
from mqgate.production.store import Item

# Around every property, where RocketMQ keeps them.
_MARKS = 2
_LONGEST_KEY = 256
_PROPERTY = b"mqgate-property-"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEADERS = {b"mqgate-key", b"mqgate-tag", b"mqgate-delay", b"mqgate-deliver-at", b"idempotency-key"}


class Envelope(Struct, rename="camel", forbid_unknown_fields=True):
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | None = None
    tag: str | None = None
    properties: dict[str, str] | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    idempotency_key: str | None = None


_envelope = msgspec.json.Decoder(Envelope)
_text = msgspec.json.Decoder(str)
_members = msgspec.json.Decoder(dict[str, Any])
# In so few bytes no number is too long for Python, and with so few brackets nothing is too deep.
_MOST_PLAIN = 4_096
_DEEPEST_PLAIN = 100


class Reader:
    """Makes items of envelopes and requests for one topic."""

    def __init__(self, *, max_message_bytes: int, longest_delay: timedelta, clock: Callable[[], datetime]) -> None:
        self._most_bytes = max_message_bytes
        self._longest_delay = longest_delay
        self._clock = clock

    def from_envelope(self, topic: str, given: Envelope, extra: Mapping[str, str], plain: bytes | None = None) -> Item:
        """`plain`: its body, if that was read before."""
        return self._item(topic, _body(given) if plain is None else plain, given, extra)

    def from_raw(self, topic: str, raw: Raw, extra: Mapping[str, str]) -> Item:
        """An item of a batch: its faults are its own."""
        text = bytes(raw)
        given = decode_outside(text, _envelope)
        plain = plain_body(text, given)
        if plain is None:
            refuse_repeats(text)
        return self.from_envelope(topic, given, extra, plain)

    def from_headers(self, topic: str, request: Request, extra: Mapping[str, str]) -> Item:
        properties = {}
        _refuse_strangers(request)
        for name in request.headers:
            if name.startswith(_PROPERTY):
                properties[name.removeprefix(_PROPERTY).decode("latin-1")] = request.header(name) or ""
        given = Envelope(
            key=request.header(b"mqgate-key"),
            tag=request.header(b"mqgate-tag"),
            properties=properties,
            delay=_number(request.header(b"mqgate-delay")),
            deliver_at=_whole(request.header(b"mqgate-deliver-at")),
            idempotency_key=request.header(b"idempotency-key"),
        )
        return self._item(topic, request.body, given, extra)

    def _item(self, topic: str, body: bytes, given: Envelope, extra: Mapping[str, str]) -> Item:
        if not body:
            raise EmptyBody("a message must not be empty: RocketMQ cannot carry it", field="body")
        if len(body) > self._most_bytes:
            raise TooLarge(f"a message may have {self._most_bytes} bytes", field="body", limit=self._most_bytes)
        key, tag, once = given.key, given.tag, given.idempotency_key
        properties = {**extra, **(given.properties or {})} if extra else given.properties or NO_PROPERTIES
        if properties or key is not None or tag is not None:
            _check(key, tag, properties)
        if once is not None and not (1 <= len(once) <= _LONGEST_KEY and once.isprintable()):
            raise InvalidValue(
                f"an idempotency key has 1 to {_LONGEST_KEY} printable characters",
                field="idempotencyKey",
                limit=_LONGEST_KEY,
            )
        due = None
        if given.delay is not None or given.deliver_at is not None:
            delay = None if given.delay is None else parse_duration(given.delay, "delay")
            at = None if given.deliver_at is None else parse_instant(given.deliver_at, "deliverAt")
            due = plan(delay, at, self._clock(), self._longest_delay)
        message_id = new_id(time.time_ns() // 1_000_000) if once is None else derived_id(topic, once, body)
        slot = None if key is None else slot_of(key)
        # Not by their fields' names: a batch makes a hundred of each.
        draft = tuple.__new__(Draft, (message_id, body, key, tag, properties, slot))
        return tuple.__new__(Item, (draft, due, once))


def _refuse_strangers(request: Request) -> None:
    """A header of ours that is misspelt or given twice would change the message silently."""
    ours = [name for name, _ in request.scope["headers"] if name.startswith(b"mqgate-") or name == b"idempotency-key"]
    for name in ours:
        if not name.startswith(_PROPERTY) and name not in _HEADERS:
            raise UnknownField(
                f"{name.decode('latin-1')} is not known here: leave it out", field=name.decode("latin-1")
            )
    if len(set(ours)) < len(ours):
        twice = next(name for name in ours if ours.count(name) > 1).decode("latin-1")
        raise InvalidValue(f"{twice} is given twice: say it once", field=twice)


def _check(key: str | None, tag: str | None, properties: Mapping[str, str]) -> None:
    size = 0
    if key is not None:
        size += len(check_text(key, "key").encode())
    if tag is not None:
        size += len(check_text(tag, "tag").encode())
    for name, value in properties.items():
        if name.startswith(OWN_PREFIX):
            raise InvalidValue(
                f"properties must not begin with {OWN_PREFIX}: those are mqgate's own", field="properties"
            )
        size += len(check_text(name, "properties").encode())
        size += len(check_text(value, f"properties.{name}").encode()) + _MARKS
    if size > MOST_PROPERTY_BYTES:
        raise TooLarge(
            "key, tag and properties may have 30 KiB together", field="properties", limit=MOST_PROPERTY_BYTES
        )


def plain_body(raw: bytes, given: Envelope) -> bytes | None:
    """The body of an envelope that certainly has no member twice; None if that is not so plain.

    Every member has at least the quotes of its name and, of a text, of its value. If all quotes there are belong to
    members that were read once, then there is no room for another. What is read here is valid, so that nobody has to
    look at it again; whatever is doubtful gets its answer from those who look.
    """
    own = given.body
    if own is UNSET or given.body_base64 is not UNSET or given.delay is not None or given.deliver_at is not None:
        return None
    body = bytes(own)
    texts = 3 - (given.key, given.tag, given.idempotency_key).count(None)
    names = 1
    if given.properties is not None:
        names += 1
        texts += len(given.properties)
    if raw.count(b'"') - body.count(b'"') != 2 * names + 4 * texts:
        return None
    try:
        if body[:1] == b'"':
            return _text.decode(body).encode()
        # Its members are as many as its colons: it has none twice, and no other object in it has any.
        is_short = body[:1] == b"{" and len(body) < _MOST_PLAIN and body.count(b"[") < _DEEPEST_PLAIN
        if is_short and body.count(b":") == len(_members.decode(body)):
            return msgspec.json.format(body, indent=-1)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return None


def _body(given: Envelope) -> bytes:
    if given.body_base64 is not UNSET:
        if given.body is not UNSET:
            raise InvalidValue("say body or bodyBase64, not both", field="body")
        try:
            return base64.b64decode(given.body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidValue("bodyBase64 must be standard base64 with padding", field="bodyBase64") from None
    if given.body is UNSET:
        raise EmptyBody("a message needs body or bodyBase64", field="body")
    raw = bytes(given.body)
    try:
        return _text.decode(raw).encode() if raw.lstrip()[:1] == b'"' else msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidJson(f"mend the JSON: {error}", field="body") from None


def _number(text: str | None) -> float | str | None:
    """A header's duration: a bare number, written as JSON's are, is seconds."""
    return float(text) if text is not None and _NUMBER.fullmatch(text) else text


def _whole(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else text  # noqa: PLR2004 - more is no instant
