"""Notifications are grouped by rule, bounded, repeated, and followed by a recovery notice."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from mqgate.control.alerts.grouping import MAX_LISTED, GroupingTimes, Planned, plan
from mqgate.core.alarms import Alarm, AlarmState, NotificationKind, RuleName, Silence
from mqgate.testing.clock import NOON

TIMES = GroupingTimes(group=timedelta(minutes=1), repeat=timedelta(hours=4))


def firing(number: int = 1, rule: RuleName = RuleName.BACKLOG_COUNT) -> Alarm:
    return Alarm(
        id=f"{rule}-{number}",
        rule=rule,
        subject=f"group-{number}",
        state=AlarmState.FIRING,
        value=number,
        threshold=0,
        since=NOON,
        fired_at=NOON,
    )


def planned(
    alarms: Sequence[Alarm], now: datetime = NOON, silences: Mapping[str, Silence] | None = None, sent: bool = False
) -> Planned:
    last = {(RuleName.BACKLOG_COUNT, NotificationKind.FIRING): NOON} if sent else {}
    return plan(alarms, silences or {}, TIMES, last, now)


def silence(**members: object) -> dict[str, Silence]:
    whole = Silence(
        name="s", rule=None, subject=None, ends_at=NOON + timedelta(hours=1), reason=None, actor="a", created_at=NOON
    )
    return {"s": replace(whole, **members)}  # type: ignore[arg-type]


def test_a_thousand_alarms_are_one_notification() -> None:
    """It lists the largest values and counts the rest, so its size is bounded."""
    _, (notification,) = planned([firing(number) for number in range(1_000)])

    assert notification.count == 1_000
    assert len(notification.alarms) == MAX_LISTED
    assert notification.alarms[0].subject == "group-999"
    assert notification.title == "[FIRING] backlog count: 1000 groups"
    assert notification.text.endswith("- and 980 more")
    assert len(notification.text) < 2_000


def test_each_rule_has_its_own_notification() -> None:
    """Different people may be responsible."""
    found = planned([firing(), firing(rule=RuleName.DEAD_LETTERS)]).notifications

    assert {item.rule for item in found} == {RuleName.BACKLOG_COUNT, RuleName.DEAD_LETTERS}
    assert len({item.id for item in found}) == 2


def test_an_alarm_is_notified_once_until_the_repeat_interval() -> None:
    """Then it is repeated, because somebody may have forgotten it."""
    alarms, first = planned([firing()])

    _, soon = planned(alarms, NOON + timedelta(hours=3))
    _, later = planned(alarms, NOON + timedelta(hours=4))

    assert (len(first), len(soon), len(later)) == (1, 0, 1)
    assert first[0].id != later[0].id


def test_alarms_within_the_group_interval_wait_and_are_sent_together() -> None:
    """Groups that fire one after another would otherwise be a message each."""
    waiting, none = planned([firing(1), firing(2)], NOON + timedelta(seconds=59), sent=True)
    _, (notification,) = planned(waiting, NOON + timedelta(seconds=60), sent=True)

    assert none == []
    assert notification.count == 2


def test_a_pending_alarm_is_not_notified() -> None:
    """It may end before its time is over."""
    assert planned([replace(firing(), state=AlarmState.PENDING)]).notifications == []


def test_a_recovery_is_announced_once_and_closes_the_alarm() -> None:
    """People who were called must learn that it is over."""
    (alarm,) = planned([firing()]).alarms
    resolved = replace(alarm, state=AlarmState.RESOLVED, resolved_at=NOON)

    (closed,), (notification,) = planned([resolved], sent=True)

    assert notification.kind is NotificationKind.RESOLVED
    assert notification.title == "[RESOLVED] backlog count: group group-1"
    assert not closed.is_open


def test_a_recovery_of_which_nobody_was_notified_is_silent() -> None:
    """Nobody knows the alarm."""
    (closed,), notifications = planned([replace(firing(), state=AlarmState.RESOLVED)])

    assert notifications == []
    assert not closed.is_open


def test_a_silence_suppresses_what_it_names() -> None:
    """A rule, a subject, both, or everything."""
    alarms = [firing(1), firing(2), firing(1, RuleName.DEAD_LETTERS)]

    def notified(**members: object) -> int:
        return sum(item.count for item in planned(alarms, silences=silence(**members)).notifications)

    assert notified() == 0
    assert notified(rule=RuleName.DEAD_LETTERS) == 2
    assert notified(subject="group-1") == 1
    assert notified(rule=RuleName.DEAD_LETTERS, subject="group-2") == 3


def test_an_alarm_that_still_fires_after_a_silence_is_notified() -> None:
    """The silence delays the notification; it does not lose it."""
    alarms, before = planned([firing()], silences=silence())

    _, after = planned(alarms, NOON + timedelta(hours=1), silences=silence())

    assert (before, len(after)) == ([], 1)
