"""The rules of alarms, as pure functions.

An alarm belongs to one rule and one subject. Its state changes by the table below, as in Prometheus: a value above the
threshold makes it pending, and it fires once the value was above the threshold for the time `hold`. A value that is
currently unknown changes nothing: a store that cannot be read must neither fire nor resolve an alarm.

    inactive --above--> pending --held--> firing --below--> resolved
                pending --below--> inactive (leaves no trace)
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from mqgate.core.alarms import Alarm, AlarmState, RuleName, RuleOverride, Silence

__all__ = ["RULES", "TRANSITIONS", "Condition", "Readings", "Rule", "RuleSettings", "advance", "is_silenced", "resolve"]

# The value of each subject of a rule. A missing subject no longer exists; the value None is unknown. A rule that is
# missing altogether, or None, is unknown for all subjects.
Readings = Mapping[RuleName, Mapping[str, float | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """The settings of a rule for one subject."""

    threshold: float
    hold: timedelta
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: what its subjects are, its unit, its defaults, and a sentence about its value."""

    subject: str
    unit: str
    meaning: str
    defaults: RuleSettings


def _rule(subject: str, unit: str, threshold: float, minutes: float, meaning: str) -> Rule:
    defaults = RuleSettings(threshold=threshold, hold=timedelta(minutes=minutes))
    return Rule(subject=subject, unit=unit, meaning=meaning, defaults=defaults)


RULES: Mapping[RuleName, Rule] = {
    RuleName.BACKLOG_COUNT: _rule("group", "messages", 10_000, 5, "unsettled messages of the group"),
    RuleName.BACKLOG_AGE: _rule("group", "seconds", 600, 5, "age of the oldest unsettled message of the group"),
    RuleName.NO_CONSUMER: _rule("group", "seconds", 300, 1, "time for which messages waited and no client polled"),
    RuleName.DEAD_LETTERS: _rule("group", "messages", 0, 0, "dead letters of the last 5 minutes"),
    RuleName.REDELIVERY_RATIO: _rule(
        "group", "ratio", 0.2, 5, "share of redeliveries in the deliveries of the last 5 minutes; 0 below 20 deliveries"
    ),
    RuleName.BLOCKED_QUEUE: _rule("group", "queues", 0, 1, "queues that an exhausted message blocks"),
    RuleName.PUBLISH_ERRORS: _rule(
        "topic", "ratio", 0.05, 2, "share of publishes of the last 5 minutes that a store or the gateway refused"
    ),
    RuleName.THROTTLING: _rule("topic", "messages", 100, 5, "messages of the last 5 minutes above a rate limit"),
    RuleName.LATE_TIMERS: _rule("deployment", "seconds", 60, 1, "time since the oldest scheduled message was due"),
    RuleName.PIPELINE_BEHIND: _rule("pipeline", "messages", 100_000, 10, "messages that the pipeline has not read"),
    RuleName.PIPELINE_FAILED: _rule("pipeline", "failures", 0, 5, "1 while the last run of the pipeline failed"),
    RuleName.BROKER_UNREACHABLE: _rule(
        "deployment", "servers", 0, 1, "name servers and brokers that a gateway cannot reach"
    ),
    RuleName.REDIS_UNREACHABLE: _rule("deployment", "gateways", 0, 1, "gateways that cannot reach Redis"),
    RuleName.POSTGRES_UNREACHABLE: _rule("deployment", "gateways", 0, 1, "gateways that cannot reach PostgreSQL"),
}


class Condition(Enum):
    """How a value compares with the threshold. HELD: it was above the threshold for the time `hold`."""

    BELOW = auto()
    ABOVE = auto()
    HELD = auto()
    UNKNOWN = auto()


_I, _P, _F, _R = AlarmState.INACTIVE, AlarmState.PENDING, AlarmState.FIRING, AlarmState.RESOLVED
# A resolved alarm is final: a value above the threshold starts another alarm.
TRANSITIONS: Mapping[tuple[AlarmState, Condition], AlarmState] = {
    (_I, Condition.BELOW): _I,
    (_I, Condition.ABOVE): _P,
    (_I, Condition.HELD): _F,
    (_I, Condition.UNKNOWN): _I,
    (_P, Condition.BELOW): _I,
    (_P, Condition.ABOVE): _P,
    (_P, Condition.HELD): _F,
    (_P, Condition.UNKNOWN): _P,
    (_F, Condition.BELOW): _R,
    (_F, Condition.ABOVE): _F,
    (_F, Condition.HELD): _F,
    (_F, Condition.UNKNOWN): _F,
}


def resolve(rule: RuleName, subject: str, overrides: Mapping[str, RuleOverride]) -> RuleSettings:
    """Return the settings of a rule for a subject: its defaults, then overrides for all, then for the subject."""
    settings = RULES[rule].defaults
    for name in ("", subject) if subject else ("",):
        found = overrides.get(RuleOverride(rule=rule, subject=name).name)
        if found is not None:
            settings = RuleSettings(
                threshold=settings.threshold if found.threshold is None else found.threshold,
                hold=settings.hold if found.hold is None else found.hold,
                is_enabled=settings.is_enabled if found.is_enabled is None else found.is_enabled,
            )
    return settings


def advance(
    alarms: Sequence[Alarm], readings: Readings, overrides: Mapping[str, RuleOverride], now: datetime
) -> list[Alarm]:
    """Return the alarms after an evaluation. A pending alarm that ended is returned as inactive."""
    current = {(alarm.rule, alarm.subject): alarm for alarm in alarms if alarm.state in {_P, _F}}
    after = [alarm for alarm in alarms if alarm.state is _R]
    for rule in RULES:
        values = readings.get(rule)
        known = {subject for other, subject in current if other is rule}
        for subject in known | set(values or ()):
            settings = resolve(rule, subject, overrides)
            value: float | None = 0.0
            if settings.is_enabled:
                value = None if values is None else values.get(subject, 0.0)
            alarm = _evaluate(current.get((rule, subject)), rule, subject, value, settings, now)
            if alarm is not None:
                after.append(alarm)
    return after


def _evaluate(
    alarm: Alarm | None, rule: RuleName, subject: str, value: float | None, settings: RuleSettings, now: datetime
) -> Alarm | None:
    since = now if alarm is None else alarm.since
    before = _I if alarm is None else alarm.state
    condition = _condition(value, settings, now - since)
    state = TRANSITIONS[before, condition]
    if alarm is None:
        if state is _I or value is None:
            return None
        alarm_id = hashlib.sha256(f"{rule} {subject} {since.isoformat()}".encode()).hexdigest()[:32]
        alarm = Alarm(
            id=alarm_id, rule=rule, subject=subject, state=_I, value=value, threshold=settings.threshold, since=since
        )
    if value is not None:
        alarm = replace(alarm, value=value, threshold=settings.threshold)
    if state is _F and before is not _F:
        alarm = replace(alarm, fired_at=now)
    if state is _R:
        alarm = replace(alarm, resolved_at=now)
    return replace(alarm, state=state)


def _condition(value: float | None, settings: RuleSettings, elapsed: timedelta) -> Condition:
    if value is None:
        return Condition.UNKNOWN
    if not settings.is_enabled or value <= settings.threshold:
        return Condition.BELOW
    return Condition.HELD if elapsed >= settings.hold else Condition.ABOVE


def is_silenced(alarm: Alarm, silences: Mapping[str, Silence], now: datetime) -> bool:
    """Return whether a silence covers the alarm now."""
    return any(
        silence.ends_at > now
        and silence.rule in {None, alarm.rule}
        and (silence.subject is None or silence.subject == alarm.subject)
        for silence in silences.values()
    )
