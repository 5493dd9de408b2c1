"""Publish: single messages, batches and raw bodies.

A publish without an idempotency key gets one if the client may send it again, so a retry stores no second copy.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from mqgate.client.caller import Caller
from mqgate.client.errors import GatewayError
from mqgate.client.message import envelope
from mqgate.client.requests import Call, Duration, Instant, encode, path, post, wire
from mqgate.client.types import Published, PublishResult

__all__ = ["item_error", "publish", "publish_batch", "publish_encoded", "publish_raw", "raw_metadata"]


async def publish(
    caller: Caller, topic: str, body: Any, producer: str | None, metadata: Mapping[str, Any]
) -> Published:
    content = envelope(body, **metadata)
    if caller.has_retries:
        content.setdefault("idempotencyKey", uuid4().hex)
    is_repeatable = "idempotencyKey" in content
    call = post(content, "topics", topic, "messages", query={"producer": producer}, is_repeatable=is_repeatable)
    return cast("Published", await caller.call(call))


async def publish_batch(
    caller: Caller, topic: str, envelopes: Sequence[Mapping[str, Any]], producer: str | None
) -> list[PublishResult]:
    """Send a batch, and again those of its messages that may succeed later. Return one result per message."""
    messages = [_with_key(message) for message in envelopes] if caller.has_retries else list(envelopes)
    is_repeatable = all(message.get("idempotencyKey") for message in messages)
    contents = [encode(message) for message in messages]
    return await publish_encoded(caller, topic, contents, producer, is_repeatable=is_repeatable)


async def publish_encoded(
    caller: Caller, topic: str, messages: Sequence[bytes], producer: str | None, *, is_repeatable: bool
) -> list[PublishResult]:
    """Send a batch of encoded envelopes. It is repeatable if each has an idempotency key."""
    retries = caller.retries()
    results = await _send(caller, topic, messages, producer, is_repeatable)
    while failed := _retryable(results):
        error = item_error(results[failed[0]])
        pause = retries.pause_after(error, Call(method="POST", path=""))
        if pause is None:
            return results
        await caller.transport.pause(pause)
        again = await _send(caller, topic, [messages[place] for place in failed], producer, is_repeatable)
        for place, result in zip(failed, again, strict=True):
            results[place] = result
    return results


async def publish_raw(
    caller: Caller, topic: str, body: bytes, content_type: str, producer: str | None, metadata: Mapping[str, Any]
) -> Published:
    if content_type.partition(";")[0].strip().lower() == "application/json":
        raise ValueError("content_type application/json denotes an envelope: use publish")
    headers = {"Content-Type": content_type} | {
        name: str(wire(value)) for name, value in metadata.items() if value is not None
    }
    if caller.has_retries:
        headers.setdefault("Idempotency-Key", uuid4().hex)
    call = Call(
        method="POST",
        path=path("topics", topic, "messages"),
        query={"producer": producer},
        content=body,
        headers=headers,
        is_repeatable="Idempotency-Key" in headers,
    )
    return cast("Published", await caller.call(call))


def raw_metadata(
    key: str | None,
    tag: str | None,
    properties: Mapping[str, str] | None,
    delay: Duration | None,
    deliver_at: Instant | None,
    idempotency_key: str | None,
) -> dict[str, Any]:
    """Return the metadata of a raw message as headers."""
    named = {
        "Mqgate-Key": key,
        "Mqgate-Tag": tag,
        "Mqgate-Delay": delay,
        "Mqgate-Deliver-At": deliver_at,
        "Idempotency-Key": idempotency_key,
    }
    return named | {f"Mqgate-Property-{name}": value for name, value in (properties or {}).items()}


def item_error(result: PublishResult) -> GatewayError:
    """Return the error of a refused message of a batch."""
    error = result["error"]
    return GatewayError(
        status=result["status"],
        code=str(error.get("code")),
        title=str(error.get("title")),
        detail=str(error.get("detail")),
        retryable=bool(error.get("retryable")),
        members={name: value for name, value in error.items() if name in {"field", "limit", "index"}},
    )


def _with_key(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return message if message.get("idempotencyKey") else {**message, "idempotencyKey": uuid4().hex}


async def _send(
    caller: Caller, topic: str, messages: Sequence[bytes], producer: str | None, is_repeatable: bool
) -> list[PublishResult]:
    call = Call(
        method="POST",
        path=path("topics", topic, "messages"),
        query={"producer": producer},
        content=b'{"messages":[' + b",".join(messages) + b"]}",
        headers={"Content-Type": "application/json"},
        is_repeatable=is_repeatable,
    )
    response = await caller.call(call)
    return cast("list[PublishResult]", response["results"])


def _retryable(results: Sequence[PublishResult]) -> list[int]:
    return [place for place, result in enumerate(results) if result.get("error", {}).get("retryable")]
