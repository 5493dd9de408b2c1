"""Prometheus metrics. Label values are registered names and fixed words only, so their number is limited."""

import platform
from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from mqgate import __version__
from mqgate.telemetry.labelled_metrics import Count, LabelledCounter, LabelledHistogram, Timing

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        # The counter and histogram of each operation and status, looked up once per response.
        self._responses: dict[tuple[str, int], tuple[Count, Timing]] = {}
        self.requests = LabelledCounter("mqgate_requests", "Completed requests", ["operation", "status"], registry)
        self.latency = LabelledHistogram(
            "mqgate_request_seconds", "Time from request to response", "operation", registry, bounds=_LATENCIES
        )
        self.in_flight = Gauge("mqgate_requests_in_flight", "Requests in progress", registry=registry)
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
        self.refused = LabelledCounter(
            "mqgate_publish_refused", "Messages that were not stored, by error code", ["topic", "code"], registry
        )
        self.redelivered = LabelledCounter("mqgate_redelivered", "Messages delivered again", ["group"], registry)
        self.dead = LabelledCounter("mqgate_dead", "Messages stored as dead letters", ["group"], registry)
        self.expired = Counter(
            "mqgate_expired",
            "Messages deleted by retention before a group received them",
            ["group"],
            registry=registry,
        )

        self.long_polls = LabelledCounter("mqgate_long_polls", "Parked receives by outcome", ["outcome"], registry)
        self.parked = Gauge("mqgate_parked_requests", "Receives that are currently parked", registry=registry)
        self.wake_up = Histogram(
            "mqgate_wake_up_seconds",
            "Time from an event to the response of the woken receive",
            registry=registry,
            buckets=_LATENCIES,
        )
        self.empty_wake_ups = Counter("mqgate_empty_wake_ups", "Wake-ups that found no message", registry=registry)

        self.tail_messages = Gauge(
            "mqgate_tail_messages", "Newest messages that the embedded engine keeps in memory", registry=registry
        )
        self.tail_bytes = Gauge(
            "mqgate_tail_bytes", "Memory of the newest messages that the embedded engine keeps", registry=registry
        )

        self.watch_requests = Counter(
            "mqgate_watch_requests", "Parked pull requests sent to brokers", registry=registry
        )

        self.scheduled = Counter("mqgate_scheduled", "Messages scheduled for later", registry=registry)
        self.dispatched = Counter("mqgate_dispatched", "Scheduled messages appended to the log", registry=registry)
        self.lateness = Histogram(
            "mqgate_dispatch_lateness_seconds",
            "Time from due to stored",
            registry=registry,
            buckets=_LATENCIES,
        )

        self.pipeline_running = Gauge(
            "mqgate_pipeline_running",
            "1 if a pipeline is running, 0 if it failed or ended",
            ["pipeline"],
            registry=registry,
        )
        self.pipeline_behind = Gauge(
            "mqgate_pipeline_behind", "Messages that a pipeline has not read yet", ["pipeline"], registry=registry
        )
        self.pipeline_seen = Gauge(
            "mqgate_pipeline_seen_timestamp_seconds",
            "Time of the last status report of a pipeline",
            ["pipeline"],
            registry=registry,
        )
        self.events = Counter("mqgate_events", "Rows written to the topic mqgate_events", registry=registry)
        self.events_dropped = Counter(
            "mqgate_events_dropped", "Rows dropped because the log did not accept them", registry=registry
        )

        # Only the gateway that evaluates the alarms exports the values of the deployment.
        self.group_lag = Gauge("mqgate_group_lag", "Unsettled messages of a group", ["group"], registry=registry)
        self.group_oldest_age = Gauge(
            "mqgate_group_oldest_age_seconds",
            "Age of the oldest unsettled message of a group",
            ["group"],
            registry=registry,
        )
        self.alarms = Gauge("mqgate_alarms", "Pending and firing alarms", ["rule", "state"], registry=registry)
        self.channel_up = Gauge(
            "mqgate_alarm_channel_up",
            "1 if the last notification was sent, 0 if it failed",
            ["channel"],
            registry=registry,
        )
        self.notifications = Counter(
            "mqgate_notifications", "Attempts to send a notification", ["channel", "outcome"], registry=registry
        )
        self.build_info = Info("mqgate_build", "Version of the gateway and of Python", registry=registry)
        self.build_info.info({"version": __version__, "python": platform.python_version()})
        ProcessCollector(registry=registry)

    def count_response(self, operation: str, status: int, seconds: float) -> None:
        """Count a completed request."""
        known = self._responses.get((operation, status))
        if known is None:
            known = self._responses[operation, status] = (
                self.requests.labels(operation, status),
                self.latency.labels(operation),
            )
        count, timing = known
        count.value += 1
        timing.observe(seconds)

    def clear_deployment(self) -> None:
        """Remove the values of the deployment, because another gateway exports them."""
        for gauge in (self.group_lag, self.group_oldest_age, self.alarms, self.channel_up):
            gauge.clear()

    def render(self, worker: int | None = None) -> bytes:
        """Return the metrics of this process, with a `worker` label if it is one of several."""
        if worker is None:
            return generate_latest(self._registry)
        labelled = CollectorRegistry()
        labelled.register(_WorkerMetrics(self._registry, str(worker)))
        return generate_latest(labelled)


class _WorkerMetrics(Collector):
    """Collector that adds the worker label. A scrape reaches any worker, and without it their counters would mix."""

    def __init__(self, registry: CollectorRegistry, worker: str) -> None:
        self._registry = registry
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, "worker": self._worker}) for sample in metric.samples
            ]
            yield metric
