"""The values of all rules, from samples of groups and reports of gateways."""

from collections.abc import Iterable, Mapping, Sequence

from mqgate.control.alerts.model import Readings
from mqgate.control.alerts.samples import GroupSample
from mqgate.core.alarms import GatewayReport, RuleName

__all__ = ["group_readings", "outage_readings", "traffic_readings"]

_MIN_DELIVERIES = 20
_SERVERS = {
    RuleName.BROKER_UNREACHABLE: "broker",
    RuleName.REDIS_UNREACHABLE: "redis",
    RuleName.POSTGRES_UNREACHABLE: "postgres",
}


def group_readings(samples: Mapping[str, GroupSample | None]) -> Readings:
    """Return the values of rules on the state of groups. A group that was not read is unknown."""

    def values(name: str) -> dict[str, float | None]:
        return {group: None if sample is None else float(getattr(sample, name)) for group, sample in samples.items()}

    return {
        RuleName.BACKLOG_COUNT: values("lag"),
        RuleName.BACKLOG_AGE: values("oldest_age"),
        RuleName.NO_CONSUMER: values("idle"),
        RuleName.BLOCKED_QUEUE: values("blocked"),
    }


def traffic_readings(reports: Sequence[GatewayReport], groups: Iterable[str], topics: Iterable[str]) -> Readings:
    """Return the values of rules on counts, added over all gateways."""
    totals: dict[str, dict[str, int]] = {}
    for report in reports:
        for measure, counts in report.counts.items():
            total = totals.setdefault(measure, {})
            for name, number in counts.items():
                total[name] = total.get(name, 0) + number

    def count(measure: str, name: str) -> int:
        return totals.get(measure, {}).get(name, 0)

    def ratio(part: int, whole: int, min_whole: int = 1) -> float:
        return part / whole if whole >= min_whole else 0.0

    groups, topics = list(groups), list(topics)
    return {
        RuleName.DEAD_LETTERS: {group: float(count("dead", group)) for group in groups},
        RuleName.REDELIVERY_RATIO: {
            group: ratio(count("redelivered", group), count("delivered", group), _MIN_DELIVERIES) for group in groups
        },
        RuleName.PUBLISH_ERRORS: {
            topic: ratio(count("refused", topic), count("refused", topic) + count("published", topic))
            for topic in topics
        },
        RuleName.THROTTLING: {topic: float(count("throttled", topic)) for topic in topics},
    }


def outage_readings(reports: Sequence[GatewayReport]) -> Readings:
    """Return how many brokers, or gateways without Redis or PostgreSQL, are reported as unreachable."""
    readings: dict[RuleName, Mapping[str, float | None]] = {}
    for rule, server in _SERVERS.items():
        found = [
            (name, report.gateway) for report in reports for name in report.unreachable if name.split(" ")[0] == server
        ]
        count = len({name for name, _ in found} if rule is RuleName.BROKER_UNREACHABLE else found)
        readings[rule] = {"": float(count)}
    return readings
