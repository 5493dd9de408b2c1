"""Counters and histograms of what happens at every request.

The library's own take a lock and check themselves at each count: more than the rest of what a request is counted by.
These are counted in the loop's thread only, and read as the library's are.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

__all__ = ["Count", "LabelledCounter", "LabelledHistogram", "Timing"]


class Count:
    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0
        self.created = time.time()

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class LabelledCounter(Collector):
    """A counter for each combination of labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name = name
        self._about = about
        self._labels = labels
        self._counts: dict[tuple[str, ...], Count] = {}
        # By what was given: the same text may come as a text, a number or a member of an enumeration.
        self._given: dict[tuple[object, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: object) -> Count:
        found = self._given.get(values)
        if found is None:
            found = self._given[values] = self._counts.setdefault(tuple(map(str, values)), Count())
        return found

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._about, "counter")
        for values, count in self._counts.items():
            labels = dict(zip(self._labels, values, strict=True))
            metric.add_sample(f"{self._name}_total", labels, count.value)
            metric.add_sample(f"{self._name}_created", labels, count.created)
        yield metric


class Timing:
    __slots__ = ("_bounds", "counts", "created", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.created = time.time()

    def observe(self, seconds: float) -> None:
        # The last place is for what is longer than all bounds.
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class LabelledHistogram(Collector):
    """A histogram for each value of one label."""

    def __init__(
        self, name: str, about: str, label: str, registry: CollectorRegistry, *, bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._about = about
        self._label = label
        self._bounds = bounds
        self._timings: dict[str, Timing] = {}
        registry.register(self)

    def labels(self, value: str) -> Timing:
        found = self._timings.get(value)
        if found is None:
            found = self._timings[value] = Timing(self._bounds)
        return found

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._about, "histogram")
        for value, timing in self._timings.items():
            labels = {self._label: value}
            so_far = 0
            for bound, count in zip((*map(float, self._bounds), "+Inf"), timing.counts, strict=True):
                so_far += count
                metric.add_sample(f"{self._name}_bucket", {**labels, "le": str(bound)}, so_far)
            metric.add_sample(f"{self._name}_count", labels, so_far)
            metric.add_sample(f"{self._name}_sum", labels, timing.sum)
            metric.add_sample(f"{self._name}_created", labels, timing.created)
        yield metric
