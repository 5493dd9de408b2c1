"""What a handler gets and can raise, and what a worker reports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from mqgate.client.message import body_of
from mqgate.client.types import ReceivedMessage

__all__ = ["EventKind", "Message", "Reject", "Retry", "WorkerEvent"]


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message that was delivered to a handler."""

    data: ReceivedMessage

    @property
    def id(self) -> str:
        """The id, which never changes: not by redelivery, dead-lettering, redrive or replay."""
        return self.data["id"]

    @property
    def topic(self) -> str:
        return self.data["topic"]

    @property
    def body(self) -> bytes:
        return body_of(self.data)

    @property
    def key(self) -> str | None:
        return self.data["key"]

    @property
    def tag(self) -> str | None:
        return self.data["tag"]

    @property
    def properties(self) -> Mapping[str, str]:
        return self.data["properties"]

    @property
    def stored_at(self) -> datetime:
        return datetime.fromisoformat(self.data["storedAt"])

    @property
    def delivery(self) -> int:
        """The number of times that the message was granted, including this time."""
        return self.data.get("delivery", 1)

    def json(self) -> Any:
        """Return the body as JSON. Raise ValueError if it is none."""
        return json.loads(self.body)


class Retry(Exception):
    """Raised by a handler: deliver the message again after `delay`, instead of the backoff of the group."""

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class Reject(Exception):
    """Raised by a handler: no delivery of this message can succeed, so dead-letter it without further work.

    The gateway dead-letters a message when its last allowed delivery has failed. The worker fails the remaining ones
    without a pause and without calling the handler; another worker that gets the message meanwhile calls its own.
    """


class EventKind(StrEnum):
    """What happened to a message in a worker."""

    HANDLED = "handled"
    FAILED = "failed"
    REJECTED = "rejected"
    RELEASED = "released"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent:
    """One event of one message, for metrics. `duration` is the time of the handler in seconds."""

    kind: EventKind
    group: str
    message: Message
    duration: float = 0.0
    error: BaseException | None = None
