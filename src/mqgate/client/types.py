"""Results of calls: the JSON of the API, as it is. A newer gateway may send further members."""

from typing import Any, Generic, NotRequired, TypedDict, TypeVar

__all__ = [
    "Lag",
    "Lease",
    "Outcome",
    "Page",
    "PublishResult",
    "Published",
    "QueueBounds",
    "QueueLag",
    "Received",
    "ReceivedMessage",
]

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """One page of a list. `next` is the cursor of the following page, if there is one."""

    items: list[T]
    next: NotRequired[str | None]


class Published(TypedDict):
    """A stored message, or a scheduled one (`deliverAt`)."""

    id: str
    topic: str
    queue: NotRequired[str]
    offset: NotRequired[int]
    storedAt: NotRequired[str]
    durability: NotRequired[str]
    deliverAt: NotRequired[str]
    duplicate: NotRequired[bool]


class PublishResult(TypedDict):
    """The result of one message of a batch: that of a single publish, or `error`."""

    status: int
    id: NotRequired[str]
    topic: NotRequired[str]
    queue: NotRequired[str]
    offset: NotRequired[int]
    storedAt: NotRequired[str]
    durability: NotRequired[str]
    deliverAt: NotRequired[str]
    duplicate: NotRequired[bool]
    error: NotRequired[dict[str, Any]]


class ReceivedMessage(TypedDict):
    """A message. In queue and broadcast mode, it has no receipt of its own."""

    id: str
    topic: str
    queue: str
    offset: int
    key: str | None
    tag: str | None
    properties: dict[str, str]
    body: NotRequired[str]
    bodyBase64: NotRequired[str]
    storedAt: str
    delivery: NotRequired[int]
    receipt: NotRequired[str]
    leasedUntil: NotRequired[str]


class Lease(TypedDict):
    """The lease on a whole batch, in queue and broadcast mode."""

    receipt: str
    queue: str
    start: int
    next: int
    leasedUntil: str
    delivery: int


class Outcome(TypedDict):
    """The outcome of one settlement."""

    outcome: str
    leasedUntil: NotRequired[str]
    error: NotRequired[dict[str, Any]]


class Received(TypedDict):
    """The result of one receive. `state` says why it may be empty."""

    messages: list[ReceivedMessage]
    acked: list[Outcome]
    state: str
    lease: NotRequired[Lease]
    registered: NotRequired[bool]
    expired: NotRequired[int]
    rewound: NotRequired[int]


class QueueLag(TypedDict):
    """The position of a group in one queue."""

    queue: str
    min: int
    max: int
    committed: int
    cursor: int
    ready: int
    leased: int
    waiting: int
    lockedUntil: str | None
    lastClient: str | None
    lastConsumedAt: str | None


class Lag(TypedDict):
    """The number of messages that a group has not settled."""

    lag: int
    ready: int
    leased: int
    waiting: int
    oldestAge: float | None
    queues: list[QueueLag]


class QueueBounds(TypedDict):
    """The bounds of a queue, and the times of its first and last message."""

    queue: str
    min: int
    max: int
    open: bool
    firstStoredAt: str | None
    lastStoredAt: str | None
    offsetAt: NotRequired[int | None]
