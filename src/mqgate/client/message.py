"""Envelopes to publish, and bodies and receipts of received messages."""

import base64
from collections.abc import Mapping
from typing import Any

from mqgate.client.requests import Duration, Instant, Json, given

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
    """Return a message to publish. Bytes are stored unchanged, text as UTF-8, other values as compact JSON.

    `delay` or `deliver_at` schedules it. With an `idempotency_key`, it can be published again safely.
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
    """Return the body of a received message."""
    if "bodyBase64" in message:
        return base64.b64decode(message["bodyBase64"])
    return str(message["body"]).encode()


def receipts_of(response: Mapping[str, Any]) -> list[str]:
    """Return the receipts of a receive: one for the lease (queue and broadcast mode), or one per message."""
    lease = response.get("lease")
    if lease:
        return [lease["receipt"]]
    return [message["receipt"] for message in response.get("messages", ())]
