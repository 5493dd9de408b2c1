"""Our counters and histograms export the same samples as those of prometheus_client."""

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from mqgate.core.lease import Verb
from mqgate.telemetry.labelled_metrics import LabelledCounter, LabelledHistogram


def exported(registry: CollectorRegistry) -> str:
    return re.sub(r"(_created\S*) .*", r"\1", generate_latest(registry).decode())


def test_a_labelled_counter_exports_what_a_counter_exports() -> None:
    """Dashboards must not see a difference. Equal labels of different types are one sample."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    labelled = LabelledCounter("mqgate_done", "What was done", ["verb", "status"], ours)
    counter = Counter("mqgate_done", "What was done", ["verb", "status"], registry=theirs)

    for metric in (labelled, counter):
        metric.labels(Verb.ACK, 200).inc()
        metric.labels("ack", "200").inc(3)
        metric.labels('a"b', 404).inc(0)

    assert exported(ours) == exported(theirs)
    assert 'mqgate_done_total{status="200",verb="ack"} 4.0' in exported(ours)


@pytest.mark.parametrize("bounds", [(0.5, 1, 2.5), (1,)])
def test_a_labelled_histogram_exports_what_a_histogram_exports(bounds: tuple[float, ...]) -> None:
    """Values on a bound and above all bounds must be counted in the same buckets."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    labelled = LabelledHistogram("mqgate_took", "How long", "what", ours, bounds=bounds)
    histogram = Histogram("mqgate_took", "How long", ["what"], registry=theirs, buckets=(*bounds, float("inf")))

    for metric in (labelled, histogram):
        for seconds in (0.1, 0.5, 1.0, 1.1, 2.5, 60.0):
            metric.labels("publish").observe(seconds)
        metric.labels("ack")

    assert exported(ours) == exported(theirs)
