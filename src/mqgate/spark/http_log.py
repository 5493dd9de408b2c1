"""The log through a gateway, whatever engine it runs on."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa

from mqgate.client import Client, ClientError, GatewayError, GatewayUnreachable, every
from mqgate.core.message import instant
from mqgate.core.names import OWN_PREFIX
from mqgate.spark.log import FIELDS, AccessDenied, Ends, LogError, LogUnavailable, TopicMissing

__all__ = ["HttpLog"]

T = TypeVar("T")
_MIN_PAUSE, _MAX_PAUSE = 0.2, 5.0
# Below what a gateway serves in one answer unless it is told otherwise.
_MAX_MESSAGES_PER_READ = 100_000
# What the gateway spares itself: to make a map of the text is the executors' work.
_COLUMNS = {"properties": "propertiesJson"}
_log = logging.getLogger(__name__)


class HttpLog:
    """One or several gateways; which of them answers does not matter, so one that does not is left for the next."""

    def __init__(self, urls: Sequence[str], *, key: str | None, timeout: float, retries: int) -> None:
        self._clients = [Client(url, key, timedelta(seconds=timeout)) for url in urls]
        self._retries = retries

    def topics(self) -> list[str]:
        return self._ask(
            lambda client: [
                entry["name"] for entry in every(client.topics.list) if not entry["name"].startswith(OWN_PREFIX)
            ]
        )

    def ends(self, topic: str) -> dict[str, Ends]:
        def ask(client: Client) -> dict[str, Ends]:
            queues = client.queues(topic, times=False)
            shut = [queue["queue"] for queue in queues if not queue["open"]]
            if shut:
                raise LogUnavailable(f"{topic} {', '.join(shut)} cannot be read now: is a broker down?")
            return {queue["queue"]: Ends(queue["min"], queue["max"]) for queue in queues}

        return self._ask(ask)

    def offsets_at(self, topic: str, at_ms: int) -> dict[str, int]:
        at = instant(at_ms)
        queues = self._ask(lambda client: client.queues(topic, at=at, times=False))
        return {queue["queue"]: queue["offsetAt"] for queue in queues}

    def committed(self, topic: str, group: str) -> dict[str, int]:
        self._check_group(topic, group)
        return {queue["queue"]: queue["committed"] for queue in self._ask(lambda client: client.lag(group))["queues"]}

    def commit(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        self._check_group(topic, group)
        self._ask(lambda client: client.seek(group, dict(offsets), reason="read by Spark"))

    def read(self, topic: str, queue: str, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, FIELDS[name]) for name in columns])
        asked = [_COLUMNS.get(name, name) for name in columns]
        asked += [] if "offset" in asked else ["offset"]
        at, failures = start, 0.0
        while at < end:
            began_at = at
            try:
                for batch in self._clients[0].read_queue(
                    topic, queue, at, min(end - at, _MAX_MESSAGES_PER_READ), asked
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

    def _ask(self, ask: Callable[[Client], T]) -> T:
        failures = 0.0
        while True:
            try:
                return ask(self._clients[0])
            except (ClientError, LogError) as error:
                failures += _weight(error)
                self._retry_or_raise(error, failures)

    def _retry_or_raise(self, error: Exception, failures: float) -> None:
        """Wait before the next try, at the next gateway; raise what no repeating mends, or was repeated enough."""
        is_transient = isinstance(error, GatewayUnreachable | LogUnavailable) or getattr(error, "retryable", False)
        if not is_transient or int(failures) > self._retries:
            raise _to_log_error(error) from error
        pause = min(_MIN_PAUSE * 2 ** (failures - 1), _MAX_PAUSE)
        asked = error.retry_after if isinstance(error, GatewayError) else None
        _log.info("gateway %s did not answer, trying again: %s", self._clients[0].transport.url, error)
        self._clients.append(self._clients.pop(0))
        time.sleep(max(pause, asked.total_seconds() if asked else 0.0))

    def _check_group(self, topic: str, group: str) -> None:
        consumes = self._ask(lambda client: client.groups.get(group))["topic"]
        if consumes != topic:
            raise LogError(f"option group: {group} consumes {consumes}, not {topic}: name a group of {topic}")


def _weight(error: Exception) -> float:
    """A gateway that serves others just now is not down: it is waited for many times as long."""
    return 0.02 if isinstance(error, GatewayError) and error.code == "overloaded" else 1.0


def _as(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [batch.column(place).cast(field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select(["offset"])


def _to_log_error(error: Exception) -> LogError:
    if isinstance(error, LogError):
        return error
    if isinstance(error, GatewayError):
        if error.status in {401, 403}:
            return AccessDenied(f"option key: {error.detail} (reading a topic takes an administrator's key)")
        if error.status == 404:  # noqa: PLR2004 - what HTTP calls it
            return TopicMissing(f"{error.detail}: do the options subscribe, assign and group name what there is?")
        if not error.retryable:
            return LogError(str(error))
    return LogUnavailable(f"option url: {error}")
