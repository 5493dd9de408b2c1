"""States of alarms: threshold, time, and what happens while a value is unknown."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from mqgate.control.alerts.model import RULES, TRANSITIONS, Condition, advance, resolve
from mqgate.core.alarms import Alarm, AlarmState, RuleName, RuleOverride
from mqgate.testing.clock import NOON

RULE = RuleName.BACKLOG_COUNT
OVERRIDE = RuleOverride(rule=RULE, threshold=10, hold=timedelta(minutes=1))
OVERRIDES = {OVERRIDE.name: OVERRIDE}


def step(
    alarms: Sequence[Alarm],
    value: float | None,
    seconds: float,
    overrides: Mapping[str, RuleOverride] = OVERRIDES,
) -> list[Alarm]:
    """Evaluate one value of one group, and keep what a gateway would keep."""
    after = advance(alarms, {RULE: {"billing": value}}, overrides, NOON + timedelta(seconds=seconds))
    return [alarm for alarm in after if alarm.state is not AlarmState.INACTIVE]


def states(values: Sequence[float | None], every: float = 30) -> list[str]:
    """Return the state of the newest alarm after each evaluation."""
    alarms: list[Alarm] = []
    found = []
    for number, value in enumerate(values):
        alarms = step(alarms, value, number * every)
        found.append(alarms[-1].state.value if alarms else "inactive")
    return found


def test_every_state_and_condition_has_a_transition() -> None:
    """A missing entry would stop the evaluation of all rules. A resolved alarm is final."""
    states = set(AlarmState) - {AlarmState.RESOLVED}

    assert set(TRANSITIONS) == {(state, condition) for state in states for condition in Condition}


def test_an_alarm_fires_after_its_value_was_above_the_threshold_long_enough() -> None:
    """A short peak is not an alarm."""
    assert states([11, 11, 11]) == ["pending", "pending", "firing"]


def test_a_peak_that_ends_starts_the_time_again() -> None:
    """The time counts from the last value below the threshold."""
    assert states([11, 11, 10, 11, 11, 11]) == ["pending", "pending", "inactive", "pending", "pending", "firing"]


def test_a_value_equal_to_the_threshold_is_not_above_it() -> None:
    """A threshold of 0 means that nothing is allowed."""
    assert states([10, 10, 10, 10]) == ["inactive"] * 4


def test_an_alarm_without_a_time_fires_at_once() -> None:
    """Dead letters are reported without delay."""
    override = RuleOverride(rule=RULE, threshold=0, hold=timedelta(0))

    (alarm,) = step([], 1, 0, {override.name: override})

    assert (alarm.state, alarm.fired_at) == (AlarmState.FIRING, NOON)


def test_an_unknown_value_changes_nothing() -> None:
    """A store that cannot be read neither fires nor resolves an alarm."""
    assert states([None, None, 11, None, None, None]) == ["inactive", "inactive", *["pending"] * 4]
    assert states([11, 11, 11, None, None, 0]) == ["pending", "pending", *["firing"] * 3, "resolved"]


def test_a_rule_that_cannot_be_read_at_all_keeps_its_alarms() -> None:
    """The list of its subjects is unknown too, so none of them is gone."""
    alarms = step(step([], 11, 0), 11, 60)

    (alarm,) = advance(alarms, {}, OVERRIDES, NOON + timedelta(hours=1))

    assert alarm.state is AlarmState.FIRING


def test_an_alarm_of_a_deleted_group_is_resolved() -> None:
    """Otherwise it would fire forever."""
    alarms = step(step([], 11, 0), 11, 60)

    (alarm,) = advance(alarms, {RULE: {}}, OVERRIDES, NOON + timedelta(minutes=2))

    assert (alarm.state, alarm.resolved_at) == (AlarmState.RESOLVED, NOON + timedelta(minutes=2))


def test_a_disabled_rule_resolves_its_alarms() -> None:
    """Switching a rule off ends its notifications, also where the value cannot be read."""
    alarms = step(step([], 11, 0), 11, 60)
    off = RuleOverride(rule=RULE, subject="billing", is_enabled=False)

    (alarm,) = step(alarms, None, 90, OVERRIDES | {off.name: off})

    assert alarm.state is AlarmState.RESOLVED


def test_a_value_above_the_threshold_after_a_recovery_is_a_new_alarm() -> None:
    """Each has its own id, so that receivers can tell them apart."""
    first = step(step([], 11, 0), 11, 60)
    again = step(step(first, 0, 90), 11, 120)

    assert [alarm.state for alarm in again] == [AlarmState.RESOLVED, AlarmState.PENDING]
    assert again[0].id == first[0].id != again[1].id


def test_the_settings_of_a_subject_replace_those_of_all() -> None:
    """What is not set for the subject comes from the settings for all, then from the defaults."""
    own = RuleOverride(rule=RULE, subject="billing", threshold=99)

    found = resolve(RULE, "billing", OVERRIDES | {own.name: own})
    other = resolve(RULE, "other", OVERRIDES | {own.name: own})

    assert (found.threshold, found.hold) == (99, timedelta(minutes=1))
    assert (other.threshold, other.hold) == (10, timedelta(minutes=1))
    assert resolve(RULE, "other", {}) == RULES[RULE].defaults


@pytest.mark.parametrize("rule", RuleName)
def test_every_rule_has_defaults(rule: RuleName) -> None:
    """A new group is watched without any setting."""
    assert RULES[rule].defaults.is_enabled
    assert RULES[rule].subject in {"group", "topic", "pipeline", "deployment"}
