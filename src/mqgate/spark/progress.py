"""Progress of streaming queries as one line on a terminal, overwritten by each update."""

import json
import math
from collections.abc import Mapping
from typing import Any, TextIO

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

__all__ = ["ProgressLine", "behind", "progress_text"]

_CLEAR_LINE = "\r\x1b[K"


class ProgressLine(StreamingQueryListener):
    """A line with the latest progress of any query. The last text stays when a query ends."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._is_open = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: a start is not progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self._terminal.write(_CLEAR_LINE + progress_text(event.progress))
        self._terminal.flush()
        self._is_open = True

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802 - Spark's name
        if self._is_open:
            self._terminal.write("\n")
            self._terminal.flush()
        self._is_open = False


def progress_text(progress: Mapping[str, Any]) -> str:
    """Return the size and speed of a batch, and the time that the backlog takes at this speed."""
    rows, pace = progress["numInputRows"], progress["processedRowsPerSecond"]
    pace = pace if math.isfinite(pace) else 0
    name = f"{progress['name']}: " if progress.get("name") else ""
    text = f"{name}batch {progress['batchId']}: {rows:,} rows, {pace:,.0f} rows/s"
    left = behind(progress)
    if not left:
        return text
    return f"{text}, {left / pace:,.1f} s behind" if pace else f"{text}, {left:,} rows behind"


def behind(progress: Mapping[str, Any]) -> int:
    """Return the number of rows that were available but not read when a batch started."""
    return sum(_behind(source) for source in progress["sources"])


def _behind(source: Mapping[str, Any]) -> int:
    """Return the backlog of a source, or 0 if its offsets are not integers by queue."""
    try:
        done, end = (json.loads(source[name]) for name in ("endOffset", "latestOffset"))
    except (TypeError, ValueError):
        return 0
    return _difference(done, end)


def _difference(done: Any, end: Any) -> int:
    if isinstance(end, dict):
        known = done if isinstance(done, dict) else {}
        return sum(_difference(known.get(name, 0), value) for name, value in end.items())
    are_counts = isinstance(done, int) and isinstance(end, int)
    return max(0, end - done) if are_counts else 0
