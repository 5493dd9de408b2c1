"""What happened, as rows: what gateways write to their own topic, and Spark reads from it.

One message of the topic is one batch: an Arrow IPC stream in its body, and these properties.

    schema        which table its rows belong to and in which version: `events/1`, `lag/1`, `polls/1`
    gateway       the key too, so that batches of one gateway lie in one queue, in their order
    incarnation   a random id made when that gateway's process started
    sequence      1, 2, 3 ... within the incarnation: a gap is a loss, and shows
    sent_at       when the batch was sent, by the gateway's clock, in ms; with the time at which the log stored it, it
                  tells how far that clock is off
    dropped       rows that this incarnation had to drop so far, because the log did not take them
    last          `true` on the batch that a gateway writes when it stops; one that was killed leaves none, and what it
                  had not sent is unknown. `so_far` on the empty one that it writes when nothing has happened for some
                  seconds, also after its start: all is told. If it is started again without a goodbye, it was killed;
                  so its name must be the same then

Nothing is written about topics whose names begin with `mqgate_`. A later version may add columns at the end; what else
changes gets a new number, and readers put aside what they do not know.
"""

from enum import StrEnum
from typing import NamedTuple

from mqgate.core.names import OWN_PREFIX

__all__ = ["EVENTS", "EVENTS_TOPIC", "LAG", "POLLS", "TABLES", "Kind", "Poll", "Table"]

EVENTS_TOPIC = f"{OWN_PREFIX}events"


class Kind(StrEnum):
    """What happened to a message. Rows are single messages unless `count` says more: then it is a range of a queue."""

    PUBLISHED = "published"
    SCHEDULED = "scheduled"
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    ACKED = "acked"
    NACKED = "nacked"
    EXTENDED = "extended"
    LEASE_EXPIRED = "lease_expired"
    DEAD = "dead"
    FILTERED = "filtered"
    SKIPPED = "skipped"
    RETENTION_EXPIRED = "retention_expired"
    # A publish, or a settlement, that was answered with an error: `outcome` is its code or its outcome.
    REFUSED = "refused"


class Poll(StrEnum):
    """How a receive ended."""

    HIT = "hit"
    WOKEN = "woken"
    TIMED_OUT = "timed_out"
    EMPTY = "empty"


class Table(NamedTuple):
    """Its columns, each with its type: text, word (few different texts), int, instant."""

    name: str
    version: int
    columns: tuple[tuple[str, str], ...]

    @property
    def schema(self) -> str:
        return f"{self.name}/{self.version}"


EVENTS = Table(
    "events",
    1,
    (
        # By the gateway's clock; every other instant by the store's.
        ("at", "instant"),
        ("kind", "word"),
        ("topic", "word"),
        # None while it is scheduled, and of what was refused.
        ("queue", "word"),
        ("offset", "int"),
        ("count", "int"),
        ("group", "word"),
        # Who published; None if nobody said.
        ("producer", "word"),
        # Who received or settled.
        ("client", "word"),
        # Of published, scheduled, cancelled and dead messages; the others are known by queue and offset.
        ("id", "text"),
        # When the message was stored (scheduled: when it is due). With `at` it is the time from publish to here.
        ("stored_at", "instant"),
        # Acked, nacked, extended: when the lease began.
        ("granted_at", "instant"),
        # The number of the delivery.
        ("delivery", "int"),
        ("bytes", "int"),
        # Settlements: applied or late_applied. Refused: why.
        ("outcome", "word"),
        ("reason", "text"),
    ),
)
LAG = Table(
    "lag",
    1,
    (
        ("at", "instant"),
        ("topic", "word"),
        ("group", "word"),
        # Broadcast only.
        ("client", "word"),
        ("queue", "word"),
        ("min", "int"),
        ("max", "int"),
        ("committed", "int"),
        ("ready", "int"),
        ("leased", "int"),
        ("waiting", "int"),
        # When the oldest unsettled message of the whole group was stored; None: there is none.
        ("oldest_at", "instant"),
    ),
)
POLLS = Table(
    "polls",
    1,
    (
        ("at", "instant"),
        ("topic", "word"),
        ("group", "word"),
        ("client", "word"),
        # `Poll`: a receive without a wait is a hit or empty.
        ("outcome", "word"),
        # So many of them since the batch before.
        ("count", "int"),
    ),
)
TABLES = {table.schema: table for table in (EVENTS, LAG, POLLS)}
