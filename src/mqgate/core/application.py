"""An application: what a person asks for, and what was decided."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

__all__ = ["OPEN_STATES", "Application", "ApplicationKind", "ApplicationState"]


class ApplicationState(StrEnum):
    SUBMITTED = "submitted"
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    APPLIED = "applied"
    FAILED = "failed"


class ApplicationKind(StrEnum):
    TOPIC = "topic"
    PRODUCER = "producer"
    GROUP = "group"
    KEY = "key"
    RATE = "rate"
    SEEK = "seek"
    SKIP = "skip"
    PAUSE = "pause"
    RESUME = "resume"
    DELETION = "deletion"


# An application in one of these states excludes another one of the same kind for the same entry.
OPEN_STATES = frozenset({ApplicationState.SUBMITTED, ApplicationState.APPROVED, ApplicationState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """`entry` is the sort of the entry that it concerns (topic, producer or group), `settings` a JSON object.

    `version` grows with each change. `plan` is a JSON object that was fixed before a step that must not be decided
    again, such as the target offsets of a seek. `is_key_taken`: the applicant has received the key.
    """

    id: str
    kind: ApplicationKind
    entry: str
    name: str
    team: str | None
    settings: str
    reason: str
    applicant: str
    created_at: datetime
    state: ApplicationState = ApplicationState.SUBMITTED
    version: int = 1
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    attempts: int = 0
    next_attempt_at: datetime | None = None
    error: str | None = None
    applied_at: datetime | None = None
    plan: str | None = None
    is_key_taken: bool = False
