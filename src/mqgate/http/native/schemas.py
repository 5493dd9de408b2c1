"""Response types that several operations share. They are encoded as they are, and part of the OpenAPI document."""

import base64
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from mqgate.core.message import Message
from mqgate.core.times import format_instant, format_ms
from mqgate.ports.timer_store import Timer, TimerState


class Problem(Struct, rename="camel", omit_defaults=True):
    status: int
    code: str
    title: str
    detail: str
    retryable: bool
    field: str | UnsetType = UNSET
    limit: Any | UnsetType = UNSET
    index: int | UnsetType = UNSET
    outcome: str | UnsetType = UNSET


class StoredOut(Struct, rename="camel", omit_defaults=True):
    id: str
    topic: str
    queue: str
    offset: int
    stored_at: str
    durability: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET


class ScheduledOut(Struct, rename="camel", omit_defaults=True):
    id: str
    topic: str
    deliver_at: str
    duplicate: bool | UnsetType = UNSET


class Scheduled(Struct, rename="camel"):
    id: str
    topic: str
    deliver_at: str
    state: str
    key: str | None
    tag: str | None
    properties: dict[str, str]


class ScheduledDetailOut(Scheduled):
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET


class PublishResult(Struct, rename="camel", omit_defaults=True):
    status: int
    id: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    stored_at: str | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    deliver_at: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class PublishResults(Struct):
    results: list[PublishResult]


class MessageOut(Struct, rename="camel"):
    id: str
    topic: str
    queue: str
    offset: int
    key: str | None
    tag: str | None
    properties: dict[str, str]
    stored_at: str
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    delivery: int | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    leased_until: str | UnsetType = UNSET


class LeaseOut(Struct, rename="camel"):
    receipt: str
    queue: str
    start: int
    next: int
    leased_until: str
    delivery: int


class OutcomeOut(Struct, rename="camel"):
    outcome: str
    leased_until: str | UnsetType = UNSET
    error: Any | UnsetType = UNSET


class Outcomes(Struct):
    results: list[OutcomeOut]


class ReceiveOut(Struct, rename="camel"):
    messages: list[MessageOut]
    acked: list[OutcomeOut]
    state: str
    lease: LeaseOut | UnsetType = UNSET
    registered: bool | UnsetType = UNSET
    expired: int | UnsetType = UNSET
    rewound: int | UnsetType = UNSET


def message_out(message: Message) -> MessageOut:
    message_id, topic, queue, offset, body, key, tag, properties, stored_ms = message
    text, encoded = text_or_base64(body)
    return MessageOut(
        message_id,
        topic,
        queue,
        offset,
        key,
        tag,
        properties,  # type: ignore[arg-type]  # a mapping encodes as an object
        format_ms(stored_ms),
        text,
        encoded,
    )


def scheduled_out(timer: Timer) -> Scheduled:
    return Scheduled(*_scheduled(timer))


def scheduled_detail_out(timer: Timer) -> ScheduledDetailOut:
    """Return a scheduled message with its body. The body is no longer stored after delivery or cancellation."""
    detail = ScheduledDetailOut(*_scheduled(timer))
    if timer.draft.body:
        detail.body, detail.body_base64 = text_or_base64(timer.draft.body)
    return detail


def _scheduled(timer: Timer) -> tuple[str, str, str, str, str | None, str | None, dict[str, str]]:
    draft = timer.draft
    # A timer that is claimed for dispatch is reported as delivered.
    state = TimerState.DELIVERED if timer.state is TimerState.CLAIMED else timer.state
    return (
        draft.id,
        timer.topic,
        format_instant(timer.due),
        state,
        draft.key,
        draft.tag,
        dict(draft.properties),
    )


def text_or_base64(body: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    """Return a body as (text, unset) if it is UTF-8, otherwise as (unset, base64)."""
    try:
        return body.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(body).decode()


def texts_or_base64(bodies: Sequence[bytes]) -> tuple[Iterable[str | UnsetType], Iterable[str | UnsetType]]:
    """Return many bodies as columns of texts and of base64. The common case, all texts, is the fastest."""
    try:
        return list(map(bytes.decode, bodies)), repeat(UNSET)
    except UnicodeDecodeError:
        texts, encoded = zip(*map(text_or_base64, bodies), strict=True)
        return texts, encoded


def maybe_instant(value: datetime | None) -> str | None:
    return None if value is None else format_instant(value)
