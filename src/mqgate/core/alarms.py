"""Alarms: rules, silences, channels, notifications and their deliveries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

__all__ = [
    "Alarm",
    "AlarmSettings",
    "AlarmState",
    "Channel",
    "ChannelKind",
    "ChannelState",
    "Delivery",
    "DeliveryState",
    "GatewayReport",
    "Notification",
    "NotificationKind",
    "RuleName",
    "RuleOverride",
    "Silence",
]


class RuleName(StrEnum):
    """The rules. `control/alerts/model.py` has their subjects, units and defaults."""

    BACKLOG_COUNT = "backlog_count"
    BACKLOG_AGE = "backlog_age"
    NO_CONSUMER = "no_consumer"
    DEAD_LETTERS = "dead_letters"
    REDELIVERY_RATIO = "redelivery_ratio"
    BLOCKED_QUEUE = "blocked_queue"
    PUBLISH_ERRORS = "publish_errors"
    THROTTLING = "throttling"
    LATE_TIMERS = "late_timers"
    PIPELINE_BEHIND = "pipeline_behind"
    PIPELINE_FAILED = "pipeline_failed"
    BROKER_UNREACHABLE = "broker_unreachable"
    REDIS_UNREACHABLE = "redis_unreachable"
    POSTGRES_UNREACHABLE = "postgres_unreachable"


class AlarmState(StrEnum):
    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class NotificationKind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


class ChannelKind(StrEnum):
    APPRISE = "apprise"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOverride:
    """Settings of a rule that replace its defaults, for one subject, or for all (subject ""). None: not replaced."""

    rule: RuleName
    subject: str = ""
    threshold: float | None = None
    hold: timedelta | None = None
    is_enabled: bool | None = None

    @property
    def name(self) -> str:
        """The key in the store."""
        return f"{self.rule} {self.subject}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A period without notifications. `rule` and `subject` None match all."""

    name: str
    rule: RuleName | None
    subject: str | None
    ends_at: datetime
    reason: str | None
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A receiver of notifications. The URL may contain a password or a token."""

    name: str
    kind: ChannelKind
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSettings:
    """Everything that operators set: overrides by key, silences and channels by name."""

    overrides: Mapping[str, RuleOverride] = field(default_factory=dict)
    silences: Mapping[str, Silence] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A rule that one subject exceeded. `is_open` is False when nothing remains to be evaluated or announced.

    `notified_at` is the time of the last notification that it fires.
    """

    id: str
    rule: RuleName
    subject: str
    state: AlarmState
    value: float
    threshold: float
    since: datetime
    fired_at: datetime | None = None
    resolved_at: datetime | None = None
    notified_at: datetime | None = None
    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message about the alarms of one rule. `count` is their number, `alarms` are the first ones."""

    id: str
    at: datetime
    kind: NotificationKind
    rule: RuleName
    title: str
    text: str
    count: int
    alarms: tuple[Alarm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notification on its way to one channel. `due` is the time of the next attempt, or of the last one."""

    notification: Notification
    channel: str
    due: datetime
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """What happened to the deliveries of a channel."""

    channel: str
    pending: int
    failed: int
    last_sent_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """What one gateway observed: unreachable servers, and counts of the last minutes by measure and name."""

    gateway: str
    unreachable: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
