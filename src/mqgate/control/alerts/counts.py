"""Counts of the last minutes, from counters that only grow."""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from mqgate.telemetry.metrics import Metrics

__all__ = ["WINDOW", "CountWindow", "read_counts"]

WINDOW = timedelta(minutes=5)
# Counts by measure and name.
Counts = Mapping[str, Mapping[str, int]]
# Refusals that the client did not cause.
_SERVER_ERRORS = frozenset(
    {"storage_full", "storage_unavailable", "storage_refused", "queue_unavailable", "unknown", "overloaded"}
)


def read_counts(metrics: Metrics) -> Counts:
    """Return the totals of this process since its start."""
    refused: dict[str, int] = {}
    throttled: dict[str, int] = {}
    for (topic, code), count in metrics.refused.totals().items():
        if code == "rate_limited":
            throttled[topic] = count
        elif code in _SERVER_ERRORS:
            refused[topic] = refused.get(topic, 0) + count
    return {
        "delivered": {group: count for (group,), count in metrics.delivered.totals().items()},
        "redelivered": {group: count for (group,), count in metrics.redelivered.totals().items()},
        "dead": {group: count for (group,), count in metrics.dead.totals().items()},
        "published": {topic: count for (topic,), count in metrics.published.totals().items()},
        "refused": refused,
        "throttled": throttled,
    }


class CountWindow:
    """The increase of counters within the last minutes, as precise as the samples are frequent."""

    def __init__(self, read: Callable[[], Counts], length: timedelta = WINDOW) -> None:
        self._read = read
        self._length = length
        # The process starts with counters of 0.
        self._samples: deque[tuple[datetime | None, Counts]] = deque([(None, {})])

    def sample(self, now: datetime) -> Counts:
        """Add a sample and return the counts of the window that ends with it. Counts of 0 are omitted."""
        newest = {measure: dict(values) for measure, values in self._read().items()}
        self._samples.append((now, newest))
        while len(self._samples) > 1 and (at := self._samples[1][0]) is not None and now - at >= self._length:
            self._samples.popleft()
        oldest = self._samples[0][1]
        return {
            measure: {
                name: count - oldest.get(measure, {}).get(name, 0)
                for name, count in values.items()
                if count > oldest.get(measure, {}).get(name, 0)
            }
            for measure, values in newest.items()
        }
