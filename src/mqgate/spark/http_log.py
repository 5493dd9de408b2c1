"""The log, read through a gateway."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from mqgate.client import Client, ClientError, GatewayError, GatewayUnreachable, every
from mqgate.core.message import instant
from mqgate.core.names import OWN_PREFIX
from mqgate.spark.log import FIELDS, AccessDenied, Ends, LogError, LogUnavailable, TopicMissing

__all__ = ["HttpLog"]

T = TypeVar("T")
_MIN_PAUSE, _MAX_PAUSE = 0.2, 5.0
# Below the default limit of a gateway for one response.
_MAX_MESSAGES_PER_READ = 100_000
# Executors, not the gateway, parse the JSON text of the properties.
_COLUMNS = {"properties": "propertiesJson"}
_log = logging.getLogger(__name__)


class HttpLog:
    """A Log over one or several gateways. If a gateway does not respond, the next one is used."""

    def __init__(self, urls: Sequence[str], *, key: str | None, timeout: float, retries: int) -> None:
        self._clients = [Client(url, key, timeout=timeout, retry_for=0) for url in urls]
        self._retries = retries

    def topics(self) -> list[str]:
        return self._call(
            lambda client: [
                entry["name"] for entry in every(client.topics.list) if not entry["name"].startswith(OWN_PREFIX)
            ]
        )

    def ends(self, topic: str) -> dict[str, Ends]:
        def call(client: Client) -> dict[str, Ends]:
            queues = client.queues(topic, times=False)
            closed = [queue["queue"] for queue in queues if not queue["open"]]
            if closed:
                raise LogUnavailable(
                    f"{topic} {', '.join(closed)} cannot be read now: check that all brokers are running"
                )
            return {queue["queue"]: Ends(queue["min"], queue["max"]) for queue in queues}

        return self._call(call)

    def offsets_at(self, topic: str, at_ms: int) -> dict[str, int]:
        at = instant(at_ms)
        queues = self._call(lambda client: client.queues(topic, at=at, times=False))
        return {queue["queue"]: offset for queue in queues if (offset := queue["offsetAt"]) is not None}

    def committed(self, topic: str, group: str) -> dict[str, int]:
        self._check_group(topic, group)
        return {queue["queue"]: queue["committed"] for queue in self._call(lambda client: client.lag(group))["queues"]}

    def commit(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        self._check_group(topic, group)
        self._call(lambda client: client.seek(group, dict(offsets), reason="read by Spark"))

    def read(self, topic: str, queue: str, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, FIELDS[name]) for name in columns])
        requested = [_COLUMNS.get(name, name) for name in columns]
        requested += [] if "offset" in requested else ["offset"]
        at, failures = start, 0.0
        while at < end:
            began_at = at
            try:
                for batch in self._clients[0].read_queue(
                    topic, queue, at, min(end - at, _MAX_MESSAGES_PER_READ), requested
                ):
                    at = batch.column("offset")[-1].as_py() + 1
                    yield _as(schema, batch)
            except (ClientError, LogError) as error:
                failures = _weight(error) + (0 if at > began_at else failures)
                self._retry_or_raise(error, failures)
            else:
                if at == began_at:
                    return

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _call(self, call: Callable[[Client], T]) -> T:
        failures = 0.0
        while True:
            try:
                return call(self._clients[0])
            except (ClientError, LogError) as error:
                failures += _weight(error)
                self._retry_or_raise(error, failures)

    def _retry_or_raise(self, error: Exception, failures: float) -> None:
        """Pause, then continue with the next gateway. Raise permanent errors, and any error after the last retry."""
        is_transient = isinstance(error, GatewayUnreachable | LogUnavailable) or getattr(error, "retryable", False)
        if not is_transient or int(failures) > self._retries:
            raise _to_log_error(error) from error
        pause = min(_MIN_PAUSE * 2 ** (failures - 1), _MAX_PAUSE)
        requested = error.retry_after if isinstance(error, GatewayError) else None
        _log.info("gateway request failed, retrying: url=%s error=%s", self._clients[0].url, error)
        self._clients.append(self._clients.pop(0))
        time.sleep(max(pause, requested.total_seconds() if requested else 0.0))

    def _check_group(self, topic: str, group: str) -> None:
        consumes = self._call(lambda client: client.groups.get(group))["topic"]
        if consumes != topic:
            raise LogError(f"option group: {group} consumes {consumes}, not {topic}: name a group of {topic}")


def _weight(error: Exception) -> float:
    """Return how much an error counts towards the retries. An overloaded gateway is retried many times longer."""
    return 0.02 if isinstance(error, GatewayError) and error.code == "overloaded" else 1.0


def _as(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [batch.column(place).cast(field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select(["offset"])


def _to_log_error(error: Exception) -> LogError:
    if isinstance(error, LogError):
        return error
    if isinstance(error, GatewayError):
        if error.status in {401, 403}:
            return AccessDenied(f"option key: {error.detail} (reading a topic requires an administrator key)")
        if error.status == 404:  # noqa: PLR2004 - HTTP status Not Found
            return TopicMissing(f"{error.detail}: check the options subscribe, assign and group")
        if not error.retryable:
            return LogError(str(error))
    return LogUnavailable(f"option url: {error}")
