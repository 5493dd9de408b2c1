"""Counts of the last minutes, and the values of rules computed from them."""

from datetime import timedelta

from mqgate.control.alerts.counts import CountWindow, read_counts
from mqgate.control.alerts.readings import outage_readings, traffic_readings
from mqgate.core.alarms import GatewayReport, RuleName
from mqgate.telemetry.metrics import Metrics
from mqgate.testing.clock import NOON


def test_counts_leave_the_window_after_five_minutes() -> None:
    """An alarm on dead letters ends when no new ones are written."""
    metrics = Metrics()
    window = CountWindow(lambda: read_counts(metrics))
    found = []
    for minute in range(8):
        if minute < 2:
            metrics.dead.labels("billing").inc()
        found.append(window.sample(NOON + timedelta(minutes=minute))["dead"].get("billing", 0))

    assert found == [1, 2, 2, 2, 2, 1, 0, 0]


def test_only_refusals_by_the_server_are_publish_errors() -> None:
    """A client that sends invalid messages must not wake an operator."""
    metrics = Metrics()
    for code, count in {"storage_full": 2, "unknown": 1, "invalid_value": 50, "rate_limited": 7}.items():
        metrics.refused.labels("orders", code).inc(count)

    counts = read_counts(metrics)

    assert counts["refused"] == {"orders": 3}
    assert counts["throttled"] == {"orders": 7}


def test_values_are_added_over_all_gateways() -> None:
    """A balancer spreads the traffic of a group, and each gateway sees a part of it."""
    reports = [
        GatewayReport(gateway="a", counts={"dead": {"g": 1}, "delivered": {"g": 30}, "redelivered": {"g": 3}}),
        GatewayReport(gateway="b", counts={"dead": {"g": 2}, "delivered": {"g": 10}, "redelivered": {"g": 7}}),
    ]

    values = traffic_readings(reports, ["g", "idle"], ["orders"])

    assert values[RuleName.DEAD_LETTERS] == {"g": 3, "idle": 0}
    assert values[RuleName.REDELIVERY_RATIO] == {"g": 0.25, "idle": 0}
    assert values[RuleName.PUBLISH_ERRORS] == {"orders": 0}


def test_few_deliveries_have_no_redelivery_ratio() -> None:
    """One failed message in a quiet group is not a ratio of 100 %."""
    reports = [GatewayReport(gateway="a", counts={"delivered": {"g": 19}, "redelivered": {"g": 19}})]

    assert traffic_readings(reports, ["g"], [])[RuleName.REDELIVERY_RATIO] == {"g": 0}


def test_a_server_that_one_gateway_cannot_reach_counts() -> None:
    """The network between some of them may be interrupted. A broker counts once for all gateways."""
    reports = [
        GatewayReport(gateway="a", unreachable=("broker broker-a", "redis")),
        GatewayReport(gateway="b", unreachable=("broker broker-a", "broker broker-b", "redis")),
    ]

    values = outage_readings(reports)

    assert values[RuleName.BROKER_UNREACHABLE] == {"": 2}
    assert values[RuleName.REDIS_UNREACHABLE] == {"": 2}
    assert values[RuleName.POSTGRES_UNREACHABLE] == {"": 0}
