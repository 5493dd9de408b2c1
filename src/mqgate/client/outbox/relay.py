"""Publishes the rows of an outbox. Several relays may work on one table."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from types import TracebackType
from typing import Any, NamedTuple, Self

from mqgate.client.blocking import run_blocking
from mqgate.client.client import Client
from mqgate.client.database import check_table, transaction
from mqgate.client.errors import GatewayError
from mqgate.client.messages import item_error, publish_encoded
from mqgate.client.outbox.outbox import STATEMENTS
from mqgate.client.requests import seconds

__all__ = ["Relay"]

# The gateway refuses the content, not the caller.
_REFUSED_CONTENT = frozenset({400, 413, 422})
_MAX_PAUSE = 30.0
_log = logging.getLogger(__name__)


class _Row(NamedTuple):
    number: int
    id: str
    topic: str
    envelope: str


class Relay:
    """Moves messages from an outbox to a gateway.

    `connect` returns a new DB-API connection (`lambda: sqlite3.connect(path)`, `lambda: psycopg.connect(url)`, or
    `engine.raw_connection`). A claim ends after `lease`, which should be longer than the retries of the client.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        client: Client,
        *,
        producer: str | None = None,
        max_batch: int = 100,
        lease: float | timedelta = 120.0,
        interval: float | timedelta = 1.0,
    ) -> None:
        self._connect = connect
        self._client = client
        self._producer = producer
        self._max_batch = max_batch
        self._lease = seconds(lease)
        self._interval = seconds(interval)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Run in a thread."""
        self.check()
        self._thread = threading.Thread(target=self.run, name="mqgate-outbox", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Let `run` return after the current batch."""
        self._stopping.set()

    def check(self) -> None:
        """Raise DatabaseUnusable if the table cannot be read."""
        remedy = "the table mqgate_outbox cannot be read; create it with Outbox().create_table(connection)"
        check_table(self._connect, STATEMENTS, remedy)

    def run(self) -> None:
        """Publish until `stop`. Failures of the database and the gateway are logged, and tried again."""
        pause = self._interval
        while not self._stopping.is_set():
            try:
                count = self.run_once()
            except Exception:  # noqa: BLE001 - a relay outlives every failure of its servers
                _log.exception("outbox relay failed, retrying")
                self._stopping.wait(pause)
                pause = min(pause * 2, _MAX_PAUSE)
                continue
            pause = self._interval
            if not count:
                self._stopping.wait(self._interval)

    def run_once(self) -> int:
        """Publish one batch, and return the number of rows that are done: stored or refused.

        Raise ClientError if the gateway does not accept requests; the rows are released.
        """
        with transaction(self._connect) as connection:
            claimed = STATEMENTS.execute(connection, "claim", lease=self._lease, batch=self._max_batch)
        rows = sorted(_Row(*row) for row in claimed)
        done = 0
        pending = set(rows)
        try:
            for topic, group in groupby(sorted(rows, key=lambda row: (row.topic, row.number)), lambda row: row.topic):
                batch = list(group)
                done += self._record(batch, self._publish(topic, batch))
                pending -= set(batch)
        finally:
            self._release(sorted(pending))
        return done

    def _publish(self, topic: str, rows: Sequence[_Row]) -> list[GatewayError | None]:
        """Return None for each stored row, and the error for the others. Raise if no row can be published now."""
        contents = [row.envelope.encode() for row in rows]
        caller = self._client.core.caller
        try:
            results = run_blocking(publish_encoded(caller, topic, contents, self._producer, is_repeatable=True))
        except GatewayError as error:
            if error.retryable or error.status not in _REFUSED_CONTENT:
                raise
            if len(rows) == 1:
                return [error]
            # One row is at fault, or all are too large for one request.
            return [self._publish(topic, [row])[0] for row in rows]
        return [_error_of(result) for result in results]

    def _record(self, rows: Sequence[_Row], errors: Sequence[GatewayError | None]) -> int:
        done = 0
        with transaction(self._connect) as connection:
            for row, error in zip(rows, errors, strict=True):
                if error is None:
                    STATEMENTS.execute(connection, "delete", number=row.number)
                elif error.retryable:
                    STATEMENTS.execute(connection, "release", number=row.number)
                    continue
                else:
                    _log.error("outbox row refused: number=%d topic=%s error=%s", row.number, row.topic, error)
                    STATEMENTS.execute(connection, "refuse", number=row.number, refused=str(error))
                done += 1
        return done

    def _release(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        with transaction(self._connect) as connection:
            for row in rows:
                STATEMENTS.execute(connection, "release", number=row.number)


def _error_of(result: Any) -> GatewayError | None:
    return item_error(result) if "error" in result else None
