"""Our own counters and histograms say what the library's would say."""

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from mqgate.core.lease import Verb
from mqgate.telemetry.tallies import LabelledCounter, LabelledHistogram


def told(registry: CollectorRegistry) -> str:
    return re.sub(r"(_created\S*) .*", r"\1", generate_latest(registry).decode())


def test_a_tally_tells_what_a_counter_tells() -> None:
    """Dashboards must not notice; and one label is one line, however it was given."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = LabelledCounter("mqgate_done", "What was done", ["verb", "status"], ours)
    counter = Counter("mqgate_done", "What was done", ["verb", "status"], registry=theirs)

    for each in (tally, counter):
        each.labels(Verb.ACK, 200).inc()
        each.labels("ack", "200").inc(3)
        each.labels('a"b', 404).inc(0)

    assert told(ours) == told(theirs)
    assert 'mqgate_done_total{status="200",verb="ack"} 4.0' in told(ours)


@pytest.mark.parametrize("bounds", [(0.5, 1, 2.5), (1,)])
def test_timings_tell_what_a_histogram_tells(bounds: tuple[float, ...]) -> None:
    """Also of what lies on a bound, or beyond all of them."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    timings = LabelledHistogram("mqgate_took", "How long", "what", ours, bounds=bounds)
    histogram = Histogram("mqgate_took", "How long", ["what"], registry=theirs, buckets=(*bounds, float("inf")))

    for each in (timings, histogram):
        for seconds in (0.1, 0.5, 1.0, 1.1, 2.5, 60.0):
            each.labels("publish").observe(seconds)
        each.labels("ack")

    assert told(ours) == told(theirs)
