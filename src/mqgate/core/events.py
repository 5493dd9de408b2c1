"""The tables of events that gateways write to the topic `mqgate_events`, and that the pipelines read.

One message of the topic is one event batch: an Arrow IPC stream as its body, and these properties.

    schema        the table of the rows and its version: `events/1`, `lag/1`, `polls/1`
    gateway       the name of the gateway. It is also the message key, so all batches of a gateway are in one queue
    incarnation   a random id that the gateway creates when its process starts
    sequence      1, 2, 3 ... within the incarnation. A missing number is a gap: that batch was lost
    sent_at       when the batch was sent, in ms by the clock of the gateway. The difference to the store time of the
                  message shows the clock skew
    dropped       rows that this incarnation has dropped so far because the log did not accept them
    last          `true` on the final batch of a gateway that stops. A killed gateway writes none, and its unsent rows
                  are unknown. `so_far` on the empty batch that a gateway writes after some seconds without events, also
                  after its start: all earlier events are written. A new incarnation of the same gateway name without
                  `true` before it shows that the gateway was killed, so the name must be stable

Topics whose names begin with `mqgate_` have no events. A later version may append columns. Any other change gets a new
version number, and readers set aside batches of unknown versions.
"""

from enum import StrEnum
from typing import NamedTuple

from mqgate.core.names import OWN_PREFIX

__all__ = ["EVENTS", "EVENTS_TOPIC", "LAG", "POLLS", "TABLES", "Kind", "Poll", "Table"]

EVENTS_TOPIC = f"{OWN_PREFIX}events"


class Kind(StrEnum):
    """The kind of an event. A row describes one message, or a range of a queue if `count` is greater than 1."""

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
    # A rejected publish (`outcome` is the error code) or settlement (`outcome` is its outcome).
    REFUSED = "refused"


class Poll(StrEnum):
    """The outcome of a receive."""

    HIT = "hit"
    WOKEN = "woken"
    TIMED_OUT = "timed_out"
    EMPTY = "empty"


class Table(NamedTuple):
    """A table with its columns and their types: text, word (text with few distinct values), int, instant."""

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
        # By the clock of the gateway. All other instants are by the clock of the store.
        ("at", "instant"),
        ("kind", "word"),
        ("topic", "word"),
        # None for scheduled and refused messages.
        ("queue", "word"),
        ("offset", "int"),
        ("count", "int"),
        ("group", "word"),
        # None if the publish named no producer.
        ("producer", "word"),
        # The client that received or settled.
        ("client", "word"),
        # For published, scheduled, cancelled and dead messages. The others are identified by queue and offset.
        ("id", "text"),
        # The store time of the message (scheduled: the due time). `at` minus this is the time since the publish.
        ("stored_at", "instant"),
        # For acked, nacked and extended: the start of the lease.
        ("granted_at", "instant"),
        # The delivery count.
        ("delivery", "int"),
        ("bytes", "int"),
        # Settlements: applied or late_applied. Refused: the reason.
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
        # The store time of the oldest unsettled message of the whole group; None if there is none.
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
        # A value of `Poll`. A receive without a wait is `hit` or `empty`.
        ("outcome", "word"),
        # The number of receives since the previous batch.
        ("count", "int"),
    ),
)
TABLES = {table.schema: table for table in (EVENTS, LAG, POLLS)}
