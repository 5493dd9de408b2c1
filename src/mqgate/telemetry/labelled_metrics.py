"""Fast counters and histograms for every request.

Those of prometheus_client take a lock and validate on each call, which costs more than all other accounting of a
request. These are updated in the thread of the event loop only, and export the same samples.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

__all__ = ["Count", "LabelledCounter", "LabelledHistogram", "Timing"]


class Count:
    """The value of one label combination."""

    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0
        self.created = time.time()

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class LabelledCounter(Collector):
    """A counter with labels."""

    def __init__(self, name: str, description: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name = name
        self._description = description
        self._labels = labels
        self._counts: dict[tuple[str, ...], Count] = {}
        # By the values as passed: equal texts may be passed as str, int or enum member.
        self._by_values: dict[tuple[object, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: object) -> Count:
        count = self._by_values.get(values)
        if count is None:
            count = self._by_values[values] = self._counts.setdefault(tuple(map(str, values)), Count())
        return count

    def totals(self) -> Mapping[tuple[str, ...], int]:
        """Return the value of each label combination."""
        return {values: count.value for values, count in self._counts.items()}

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._description, "counter")
        for values, count in self._counts.items():
            labels = dict(zip(self._labels, values, strict=True))
            metric.add_sample(f"{self._name}_total", labels, count.value)
            metric.add_sample(f"{self._name}_created", labels, count.created)
        yield metric


class Timing:
    """The histogram of one label value."""

    __slots__ = ("_bounds", "counts", "created", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.created = time.time()

    def observe(self, seconds: float) -> None:
        # The last element counts values above all bounds.
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class LabelledHistogram(Collector):
    """A histogram with one label."""

    def __init__(
        self, name: str, description: str, label: str, registry: CollectorRegistry, *, bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._description = description
        self._label = label
        self._bounds = bounds
        self._timings: dict[str, Timing] = {}
        registry.register(self)

    def labels(self, value: str) -> Timing:
        timing = self._timings.get(value)
        if timing is None:
            timing = self._timings[value] = Timing(self._bounds)
        return timing

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._description, "histogram")
        for value, timing in self._timings.items():
            labels = {self._label: value}
            cumulative = 0
            for bound, count in zip((*map(float, self._bounds), "+Inf"), timing.counts, strict=True):
                cumulative += count
                metric.add_sample(f"{self._name}_bucket", {**labels, "le": str(bound)}, cumulative)
            metric.add_sample(f"{self._name}_count", labels, cumulative)
            metric.add_sample(f"{self._name}_sum", labels, timing.sum)
            metric.add_sample(f"{self._name}_created", labels, timing.created)
        yield metric
