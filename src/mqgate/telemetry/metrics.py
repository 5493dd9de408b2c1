"""Prometheus metrics. Labels are registered names and fixed words only, so their number is bounded."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

from mqgate.telemetry.tallies import Count, LabelledCounter, LabelledHistogram, Timing

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        # What is counted at every answer.
        self._answers: dict[tuple[str, int], tuple[Count, Timing]] = {}
        self.requests = LabelledCounter("mqgate_requests", "Requests answered", ["operation", "status"], registry)
        self.latency = LabelledHistogram(
            "mqgate_request_seconds", "Time to answer", "operation", registry, bounds=_LATENCIES
        )
        self.in_flight = Gauge("mqgate_requests_in_flight", "Requests worked on now", registry=registry)
        self.connections = Gauge("mqgate_connections", "Open client connections", registry=registry)
        self.connections_closed = Counter(
            "mqgate_connections_closed", "Client connections that the gateway closed", ["reason"], registry=registry
        )
        self.loop_lag = Histogram(
            "mqgate_loop_lag_seconds",
            "Delay of a timer of the event loop",
            registry=registry,
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 5, 10),
        )
        self.loop_blocked = Gauge(
            "mqgate_loop_blocked_cpu_seconds",
            "Longest CPU time that the event loop spent in one turn since the process started",
            registry=registry,
        )
        self.published = LabelledCounter("mqgate_published", "Messages stored", ["topic"], registry)
        self.delivered = LabelledCounter("mqgate_delivered", "Messages delivered", ["group"], registry)
        self.settled = LabelledCounter(
            "mqgate_settled", "Settlements by outcome", ["group", "verb", "outcome"], registry
        )
        self.dead = Counter("mqgate_dead", "Messages that became dead letters", ["group"], registry=registry)
        self.expired = Counter(
            "mqgate_expired",
            "Messages lost to retention before a group consumed them",
            ["group"],
            registry=registry,
        )

        self.long_polls = LabelledCounter(
            "mqgate_long_polls", "Waiting receives by how they ended", ["outcome"], registry
        )
        self.parked = Gauge("mqgate_parked_requests", "Requests that wait now", registry=registry)
        self.wake_up = Histogram(
            "mqgate_wake_up_seconds",
            "From an event to the woken answer",
            registry=registry,
            buckets=_LATENCIES,
        )
        self.empty_wake_ups = Counter("mqgate_empty_wake_ups", "Wake-ups without a message", registry=registry)

        self.watch_requests = Counter(
            "mqgate_watch_requests", "Requests to brokers that wait for arrivals", registry=registry
        )

        self.scheduled = Counter("mqgate_scheduled", "Messages scheduled for later", registry=registry)
        self.dispatched = Counter("mqgate_dispatched", "Scheduled messages moved into the log", registry=registry)
        self.lateness = Histogram(
            "mqgate_dispatch_lateness_seconds",
            "From due to stored",
            registry=registry,
            buckets=_LATENCIES,
        )

        self.pipeline_running = Gauge(
            "mqgate_pipeline_running",
            "Whether a pipeline works (1) or failed, or ended (0)",
            ["pipeline"],
            registry=registry,
        )
        self.pipeline_behind = Gauge(
            "mqgate_pipeline_behind", "Messages that a pipeline has not read yet", ["pipeline"], registry=registry
        )
        self.pipeline_seen = Gauge(
            "mqgate_pipeline_seen_timestamp_seconds", "When a pipeline told how it is", ["pipeline"], registry=registry
        )
        self.events = Counter("mqgate_events", "Rows written to the topic of events", registry=registry)
        self.events_dropped = Counter(
            "mqgate_events_dropped", "Rows that were not written, because the log did not take them", registry=registry
        )

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        found = self._answers.get((operation, status))
        if found is None:
            found = self._answers[operation, status] = (
                self.requests.labels(operation, status),
                self.latency.labels(operation),
            )
        count, timing = found
        count.value += 1
        timing.observe(seconds)

    def render(self, worker: int | None = None) -> bytes:
        """The numbers of this process, marked with its worker's number if it is one of several."""
        if worker is None:
            return generate_latest(self._registry)
        marked = CollectorRegistry()
        marked.register(_Marked(self._registry, str(worker)))
        return generate_latest(marked)


class _Marked(Collector):
    """Each worker answers for itself, and a scrape reaches any of them: without the label their counters would mix."""

    def __init__(self, registry: CollectorRegistry, worker: str) -> None:
        self._registry = registry
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, "worker": self._worker}) for sample in metric.samples
            ]
            yield metric
