"""Messages as they travel: envelopes on the way in, bodies and receipts on the way out."""

import base64
from collections.abc import Mapping
from typing import Any

from mqgate.client.transport import Duration, Instant, Json, given

__all__ = ["body_of", "envelope", "receipts_of"]


def envelope(
    body: Any,
    *,
    key: str | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    delay: Duration | None = None,
    deliver_at: Instant | None = None,
    idempotency_key: str | None = None,
) -> Json:
    """A message to publish: bytes arrive as they are, text as its UTF-8, all else as its compact JSON.

    `delay` or `deliver_at` schedules it; `idempotency_key` makes it safe to publish again after a doubt.
    """
    return _body(body) | given(
        key=key,
        tag=tag,
        properties=dict(properties or {}) or None,
        delay=delay,
        deliverAt=deliver_at,
        idempotencyKey=idempotency_key,
    )


def _body(body: Any) -> Json:
    if not isinstance(body, bytes):
        return {"body": body}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def body_of(message: Mapping[str, Any]) -> bytes:
    """The bytes of a received message."""
    if "bodyBase64" in message:
        return base64.b64decode(message["bodyBase64"])
    return str(message["body"]).encode()


def receipts_of(answer: Mapping[str, Any]) -> list[str]:
    """What to acknowledge of a receive: its lease (queue and broadcast mode), or each message by itself."""
    lease = answer.get("lease")
    if lease:
        return [lease["receipt"]]
    return [message["receipt"] for message in answer.get("messages", ())]
