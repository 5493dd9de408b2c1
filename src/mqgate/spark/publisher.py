"""Publishes the rows of a task in order, with retries.

    stored, scheduled, duplicate     -> done
    retryable (429, 503, `unknown`)  -> only these rows are sent again, with the same keys, after Retry-After
    no response                      -> all rows are sent again, to the next gateway
    rejected                         -> the task fails, because the row would be rejected again
A request completes before the next one starts, so that rows with the same message key stay in order. A task fails if
no row was stored for `retryTimeout`. When it runs again, the idempotency keys identify the rows that are stored.
"""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import NoReturn, Self

import msgspec

from mqgate.client import Client, ClientError, GatewayError
from mqgate.client.errors import refusal, retry_after
from mqgate.client.requests import Call, path
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing
from mqgate.spark.options import Connection, OptionInvalid
from mqgate.spark.sink_options import SinkOptions
from mqgate.spark.sink_rows import Row, RowRefused

__all__ = ["Counts", "Publisher"]

_MIN_PAUSE, _MAX_PAUSE = 0.1, 5.0
_SCHEDULED = 202
_NOT_FOUND, _UNAUTHORIZED, _FORBIDDEN = 404, 401, 403
# A driver that waits longer appears to hang.
_DRIVER_TIMEOUT = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Numbers of published messages by result."""

    stored: int = 0
    scheduled: int = 0
    duplicates: int = 0

    def __iadd__(self, other: "Counts") -> Self:
        self.stored += other.stored
        self.scheduled += other.scheduled
        self.duplicates += other.duplicates
        return self


class _Problem(msgspec.Struct):
    code: str
    detail: str = ""
    retryable: bool = False
    field: str | None = None


class _Result(msgspec.Struct):
    status: int
    duplicate: bool = False
    error: _Problem | None = None


class _Results(msgspec.Struct):
    results: list[_Result]


_results = msgspec.json.Decoder(_Results)


class Publisher:
    """Publisher of one task. `address` replaces the path of a publish by one with the same request and response."""

    def __init__(self, options: SinkOptions, address: str | None = None) -> None:
        self._options = options
        try:
            self._clients = _clients(options.connection)
        except ValueError as error:
            raise OptionInvalid(f"options url and key: {error}") from error
        self._path = address or path("topics", options.topic, "messages")

    def check(self) -> None:
        """Raise unless the key may publish to the topic.

        The check sends an empty batch: a gateway rejects it as invalid only after it has checked the permission.
        """
        deadline = _RetryDeadline(min(self._options.retry_timeout, _DRIVER_TIMEOUT))
        while True:
            try:
                self._send([])
            except ClientError as error:
                if getattr(error, "code", "") == "invalid_value":
                    return
                self._retry_or_raise(error, deadline)
            else:
                raise LogError(f"option url: {self._clients[0].url} responds, but is not a gateway")

    def publish(self, rows: Sequence[Row]) -> Counts:
        """Publish rows in order. Return when all are stored or scheduled."""
        counts = Counts()
        deadline = _RetryDeadline(self._options.retry_timeout)
        left = list(rows)
        while left:
            try:
                results, wait = self._send(left)
            except ClientError as error:
                if _is_too_large(error) and len(left) > 1:
                    middle = len(left) // 2
                    counts += self.publish(left[:middle])
                    left = left[middle:]
                else:
                    self._retry_or_raise(error, deadline)
                continue
            pending = [row for row, result in zip(left, results, strict=True) if not _is_done(row, result, counts)]
            if len(pending) < len(left):
                deadline = _RetryDeadline(self._options.retry_timeout)
            if pending:
                self._wait(next(result.error for result in results if result.error is not None), wait, deadline)
            left = pending
        return counts

    def _send(self, rows: Sequence[Row]) -> tuple[list[_Result], float]:
        content = b'{"messages":[' + b",".join([row.envelope for row in rows]) + b"]}"
        response = self._clients[0].send(
            Call(
                method="POST",
                path=self._path,
                query={"producer": self._options.producer},
                content=content,
                headers={"Content-Type": "application/json"},
            )
        )
        if not response.is_success:
            raise refusal(response)
        try:
            results = _results.decode(response.content).results
        except msgspec.MsgspecError:
            results = []
        if len(results) != len(rows):
            raise refusal(response)
        after = retry_after(response)
        return results, after.total_seconds() if after else 0.0

    def _retry_or_raise(self, error: ClientError, deadline: "_RetryDeadline") -> None:
        """Pause, then continue with the next gateway. Raise permanent errors, and any error after the deadline."""
        if isinstance(error, GatewayError) and not error.retryable:
            raise self._to_log_error(error) from error
        min_pause = error.retry_after.total_seconds() if isinstance(error, GatewayError) and error.retry_after else 0.0
        if not deadline.wait(min_pause):
            urls = ", ".join(self._options.connection.urls)
            raise LogUnavailable(
                f"option url: no request to {urls} succeeded: check that the gateway is running. {error}"
            ) from error
        _log.info("gateway request failed, retrying: url=%s error=%s", self._clients[0].url, error)
        self._clients.append(self._clients.pop(0))

    def _wait(self, problem: _Problem, min_pause: float, deadline: "_RetryDeadline") -> None:
        if not deadline.wait(min_pause):
            raise LogUnavailable(
                f"option retryTimeout: the gateway stored no more messages: {problem.detail} ({problem.code})"
            )

    def _to_log_error(self, error: GatewayError) -> LogError:
        options = self._options
        if error.status == _UNAUTHORIZED:
            return AccessDenied(f"option key: {error.detail}; check that it is not missing, mistyped or expired")
        if error.status == _FORBIDDEN:
            return AccessDenied(f"option key: the key may not publish to {options.topic}: {error.detail}")
        if error.code == "producer_not_found":
            return TopicMissing(f"option producer: {error.detail}")
        if error.status == _NOT_FOUND:
            return TopicMissing(f"option topic: {error.detail}")
        return LogError(f"option url: {error}")


class _RetryDeadline:
    """Deadline with growing pauses between retries."""

    def __init__(self, timeout: timedelta) -> None:
        self._ends = time.monotonic() + timeout.total_seconds()
        self._pause = _MIN_PAUSE

    def wait(self, min_pause: float) -> bool:
        """Pause for at least `min_pause`. Return False if the deadline would pass."""
        pause = max(min_pause, self._pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter between tasks
        if time.monotonic() + pause > self._ends:
            return False
        time.sleep(pause)
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        return True


@cache
def _clients(connection: Connection) -> list[Client]:
    """Return the clients of this process. Workers reuse them for their next tasks."""
    return [Client(url, connection.key, timeout=connection.timeout, retry_for=0) for url in connection.urls]


def _is_done(row: Row, result: _Result, counts: Counts) -> bool:
    problem = result.error
    if problem is not None:
        return not problem.retryable and _refuse(row, problem)
    if result.duplicate:
        counts.duplicates += 1
    elif result.status == _SCHEDULED:
        counts.scheduled += 1
    else:
        counts.stored += 1
    return True


def _refuse(row: Row, problem: _Problem) -> NoReturn:
    # The field of a property is "properties.origin".
    column = problem.field.partition(".")[0] if problem.field else None
    raise RowRefused(row.number, column, f"{problem.detail} ({problem.code})")


def _is_too_large(error: ClientError) -> bool:
    """Return whether the gateway has a lower request limit than the sink."""
    return isinstance(error, GatewayError) and not error.retryable and "limit" in error.members
