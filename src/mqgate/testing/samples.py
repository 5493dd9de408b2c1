"""Sample entries and drafts with plain defaults."""

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mqgate.core.backoff import NO_BACKOFF
from mqgate.core.entries import ApiKey, Group, Mode, OnPoison, Producer, Topic
from mqgate.core.lease import QueueBounds
from mqgate.core.message import Draft, new_id
from mqgate.testing.clock import NOON

_GROUP = Group(
    name="workers",
    topic="orders",
    mode=Mode.QUEUE,
    start="earliest",
    visibility=timedelta(seconds=30),
    max_attempts=16,
    backoff=NO_BACKOFF,
    on_poison=OnPoison.DEAD,
    rate_limit=None,
    client_ttl=timedelta(days=1),
    created_at=NOON,
)
_TOPIC = Topic(name="orders", queues=4, retention=None, retention_bytes=None, created_at=NOON)
_PRODUCER = Producer(name="shop", topic="orders", rate_limit=None, created_at=NOON)
_KEY = ApiKey(id="k1", digest="d" * 64, producer=None, group=None, role="admin", created_at=NOON, expires_at=None)


def a_group(**changes: Any) -> Group:
    """Return a queue-mode group without backoff."""
    return replace(_GROUP, **changes)


def a_topic(**changes: Any) -> Topic:
    return replace(_TOPIC, **changes)


def a_producer(**changes: Any) -> Producer:
    return replace(_PRODUCER, **changes)


def a_key(**changes: Any) -> ApiKey:
    return replace(_KEY, **changes)


def a_draft(body: bytes | str = b"hello", *, queue: int | None = None, **changes: Any) -> Draft:
    """Return a new draft. `queue` is the name of its queue; None leaves the choice to the log."""
    raw = body.encode() if isinstance(body, str) else body
    return Draft(new_id(int.from_bytes(os.urandom(5))), raw, slot=queue)._replace(**changes)


def queues(*ends: int | tuple[int, int]) -> dict[str, QueueBounds]:
    """Return the bounds of queues local:0, local:1, ...: the max offset, or (min, max)."""
    pairs = [(0, end) if isinstance(end, int) else end for end in ends]
    return {f"local:{number}": QueueBounds(*pair) for number, pair in enumerate(pairs)}
