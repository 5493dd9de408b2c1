"""Which notifications are due: grouped by rule, bounded in number and size.

All alarms of one rule that start to fire, or that fire again after the repeat interval, share one notification. The
next notification of the rule follows after the group interval, so that 1,000 alarms within a minute are two messages.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from mqgate.control.alerts.model import RULES, is_silenced
from mqgate.core.alarms import Alarm, AlarmState, Notification, NotificationKind, RuleName, Silence

__all__ = ["MAX_LISTED", "GroupingTimes", "Planned", "plan"]

# Alarms that a notification lists; the others are counted.
MAX_LISTED = 20
SentTimes = Mapping[tuple[RuleName, NotificationKind], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingTimes:
    """`group`: minimum time between two notifications of a rule. `repeat`: time until a firing alarm is repeated."""

    group: timedelta
    repeat: timedelta


class Planned(NamedTuple):
    """The alarms after the notifications, and the notifications."""

    alarms: list[Alarm]
    notifications: list[Notification]


def plan(
    alarms: Sequence[Alarm],
    silences: Mapping[str, Silence],
    times: GroupingTimes,
    sent: SentTimes,
    now: datetime,
) -> Planned:
    """Return the notifications that are due, and the alarms marked accordingly. `sent`: the last of each kind."""
    due: dict[tuple[RuleName, NotificationKind], list[Alarm]] = {}
    after = {alarm.id: _closed_if_unannounced(alarm) for alarm in alarms}
    for alarm in after.values():
        kind = _due_kind(alarm, silences, times.repeat, now)
        if kind is not None:
            due.setdefault((alarm.rule, kind), []).append(alarm)
    notifications = []
    for (rule, kind), found in due.items():
        last = sent.get((rule, kind))
        if last is not None and now - last < times.group:
            continue
        notifications.append(_notification(rule, kind, found, now))
        for alarm in found:
            after[alarm.id] = (
                replace(alarm, notified_at=now) if kind is NotificationKind.FIRING else replace(alarm, is_open=False)
            )
    return Planned(list(after.values()), notifications)


def _closed_if_unannounced(alarm: Alarm) -> Alarm:
    """Close a resolved alarm of which nobody was notified: it needs no recovery notice."""
    if alarm.state is AlarmState.RESOLVED and alarm.notified_at is None:
        return replace(alarm, is_open=False)
    return alarm


def _due_kind(
    alarm: Alarm, silences: Mapping[str, Silence], repeat: timedelta, now: datetime
) -> NotificationKind | None:
    if alarm.state is AlarmState.RESOLVED and alarm.is_open:
        return NotificationKind.RESOLVED
    if alarm.state is not AlarmState.FIRING or is_silenced(alarm, silences, now):
        return None
    if alarm.notified_at is None or now - alarm.notified_at >= repeat:
        return NotificationKind.FIRING
    return None


def _notification(rule: RuleName, kind: NotificationKind, alarms: Sequence[Alarm], now: datetime) -> Notification:
    listed = sorted(alarms, key=lambda alarm: (-alarm.value, alarm.subject))[:MAX_LISTED]
    ids = " ".join(sorted(alarm.id for alarm in alarms))
    digest = hashlib.sha256(f"{kind} {now.isoformat()} {ids}".encode()).hexdigest()
    return Notification(
        id=digest[:32],
        at=now,
        kind=kind,
        rule=rule,
        title=_title(rule, kind, alarms),
        text=_text(rule, listed, len(alarms)),
        count=len(alarms),
        alarms=tuple(listed),
    )


def _title(rule: RuleName, kind: NotificationKind, alarms: Sequence[Alarm]) -> str:
    subject = RULES[rule].subject
    concerned = f": {len(alarms)} {subject}s" if len(alarms) > 1 else f": {subject} {alarms[0].subject}".rstrip()
    return f"[{kind.upper()}] {rule.replace('_', ' ')}{concerned}"


def _text(rule: RuleName, listed: Sequence[Alarm], count: int) -> str:
    lines = [f"Measured: {RULES[rule].meaning}. Unit: {RULES[rule].unit}."]
    lines += [f"- {alarm.subject or 'deployment'}: {alarm.value:g} (threshold {alarm.threshold:g})" for alarm in listed]
    if count > len(listed):
        lines.append(f"- and {count - len(listed)} more")
    return "\n".join(lines)
