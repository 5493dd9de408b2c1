"""Publishing from a task: in order, as fast as the gateway lets us, and again where nobody can tell what became of it.

    stored, scheduled, known already -> done
    retryable (429, 503, `unknown`)  -> sent again with its key after the wait the gateway asks for, only those
    no answer                        -> all of them again, at the next gateway
    refused                          -> the task fails: the row will be refused again
A request is finished before the next one begins, so that no later row of a message key overtakes. Tasks give up when
nothing got through for as long as `retryTimeout`; what they stored by then is known by its keys when they run again.
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
from mqgate.client.errors import refusal
from mqgate.client.transport import path
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing
from mqgate.spark.options import Connection, OptionInvalid
from mqgate.spark.sink_options import SinkOptions
from mqgate.spark.sink_rows import Row, RowRefused

__all__ = ["Counts", "Publisher"]

_MIN_PAUSE, _MAX_PAUSE = 0.1, 5.0
_SCHEDULED = 202
_NOT_FOUND, _UNAUTHORIZED, _FORBIDDEN = 404, 401, 403
# A driver that waits longer looks as if it hung.
_PATIENCE_OF_DRIVER = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What became of messages."""

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
    """`address` is another one that takes batches and answers like a publish."""

    def __init__(self, options: SinkOptions, address: str | None = None) -> None:
        self._options = options
        try:
            self._clients = _clients(options.connection)
        except ValueError as error:
            raise OptionInvalid(f"options url and key: {error}") from error
        self._path = address or path("topics", options.topic, "messages")

    def check(self) -> None:
        """Whether we may publish to the topic, asked with what every key that may publish may send: an empty batch."""
        patience = _Patience(min(self._options.retry_timeout, _PATIENCE_OF_DRIVER))
        while True:
            try:
                self._send([])
            except ClientError as error:
                if getattr(error, "code", "") == "invalid_value":
                    return
                self._retry_or_raise(error, patience)
            else:
                raise LogError(f"option url: {self._clients[0].transport.url} answers, but is no gateway")

    def publish(self, rows: Sequence[Row]) -> Counts:
        """Publish rows in their order, each once; returns when all are stored or scheduled."""
        counts = Counts()
        patience = _Patience(self._options.retry_timeout)
        left = list(rows)
        while left:
            try:
                results, wait = self._send(left)
            except ClientError as error:
                if _is_too_much(error) and len(left) > 1:
                    middle = len(left) // 2
                    counts += self.publish(left[:middle])
                    left = left[middle:]
                else:
                    self._retry_or_raise(error, patience)
                continue
            pending = [row for row, result in zip(left, results, strict=True) if not _is_done(row, result, counts)]
            if len(pending) < len(left):
                patience = _Patience(self._options.retry_timeout)
            if pending:
                self._wait(next(each.error for each in results if each.error is not None), wait, patience)
            left = pending
        return counts

    def _send(self, rows: Sequence[Row]) -> tuple[list[_Result], float]:
        content = b'{"messages":[' + b",".join([row.envelope for row in rows]) + b"]}"
        response = self._clients[0].transport.send(
            "POST",
            self._path,
            query={"producer": self._options.producer},
            content=content,
            headers={"Content-Type": "application/json"},
        )
        if not response.is_success:
            raise refusal(response)
        try:
            results = _results.decode(response.content).results
        except msgspec.MsgspecError:
            results = []
        if len(results) != len(rows):
            raise refusal(response)
        after = response.headers.get("Retry-After", "")
        return results, float(after) if after.isascii() and after.isdecimal() else 0.0

    def _retry_or_raise(self, error: ClientError, patience: "_Patience") -> None:
        """Wait before the next try, at the next gateway; raise what no repeating mends, or was repeated enough."""
        if isinstance(error, GatewayError) and not error.retryable:
            raise self._to_log_error(error) from error
        asked = error.retry_after.total_seconds() if isinstance(error, GatewayError) and error.retry_after else 0.0
        if not patience.wait(asked):
            urls = ", ".join(self._options.connection.urls)
            raise LogUnavailable(f"option url: nothing got through to {urls} any more, is it up? {error}") from error
        _log.info("gateway %s did not take it, trying again: %s", self._clients[0].transport.url, error)
        self._clients.append(self._clients.pop(0))

    def _wait(self, problem: _Problem, asked: float, patience: "_Patience") -> None:
        if not patience.wait(asked):
            raise LogUnavailable(
                f"option retryTimeout: the gateway took no more messages: {problem.detail} ({problem.code})"
            )

    def _to_log_error(self, error: GatewayError) -> LogError:
        options = self._options
        if error.status == _UNAUTHORIZED:
            return AccessDenied(f"option key: {error.detail}; is it missing, mistyped or expired?")
        if error.status == _FORBIDDEN:
            return AccessDenied(f"option key: it may not publish to {options.topic}: {error.detail}")
        if error.code == "producer_not_found":
            return TopicMissing(f"option producer: {error.detail}")
        if error.status == _NOT_FOUND:
            return TopicMissing(f"option topic: {error.detail}")
        return LogError(f"option url: {error}")


class _Patience:
    """Growing pauses, until nothing came of them for too long."""

    def __init__(self, timeout: timedelta) -> None:
        self._ends = time.monotonic() + timeout.total_seconds()
        self._pause = _MIN_PAUSE

    def wait(self, asked: float) -> bool:
        """Pause, at least as long as asked; False: there is no time left."""
        pause = max(asked, self._pause * random.uniform(0.8, 1.2))  # noqa: S311 - only so that tasks do not march in step
        if time.monotonic() + pause > self._ends:
            return False
        time.sleep(pause)
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        return True


@cache
def _clients(connection: Connection) -> list[Client]:
    """The process's clients: workers live on from task to task, and so do their connections."""
    return [Client(url, connection.key, timedelta(seconds=connection.timeout)) for url in connection.urls]


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
    # A property is named "properties.origin".
    column = problem.field.partition(".")[0] if problem.field else None
    raise RowRefused(row.number, column, f"{problem.detail} ({problem.code})")


def _is_too_much(error: ClientError) -> bool:
    """A gateway may be set to smaller requests than ours."""
    return isinstance(error, GatewayError) and not error.retryable and "limit" in error.members
