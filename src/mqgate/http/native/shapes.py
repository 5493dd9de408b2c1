"""The answers' structures: encoded as they stand, and described in the OpenAPI document."""

import base64
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from mqgate.core.lease import Grant
from mqgate.core.message import Message
from mqgate.core.times import format_instant


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


class PublishResult(Struct, rename="camel", omit_defaults=True):
    status: int
    id: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    stored_at: str | UnsetType = UNSET
    durability: str | UnsetType = UNSET
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


def message_out(message: Message, grant: Grant | None = None) -> MessageOut:
    body: str | UnsetType = UNSET
    encoded: str | UnsetType = UNSET
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        encoded = base64.b64encode(message.body).decode()
    return MessageOut(
        message.id,
        message.topic,
        message.queue,
        message.offset,
        message.key,
        message.tag,
        message.properties,  # type: ignore[arg-type]  # a mapping encodes as an object
        format_instant(message.stored_at),
        body,
        encoded,
        UNSET if grant is None else grant.delivery,
        UNSET,
        UNSET if grant is None else format_instant(grant.leased_until),
    )


def maybe_instant(value: datetime | None) -> str | None:
    return None if value is None else format_instant(value)
