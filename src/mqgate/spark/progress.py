"""How streaming queries get on, as one line on a terminal that is written over."""

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

_OVER = "\r\x1b[K"


class ProgressLine(StreamingQueryListener):
    """One line, whichever query told something last; its last words stay when a query ends."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._is_open = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A start is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self._terminal.write(_OVER + progress_text(event.progress))
        self._terminal.flush()
        self._is_open = True

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802 - Spark's name
        if self._is_open:
            self._terminal.write("\n")
            self._terminal.flush()
        self._is_open = False


def progress_text(progress: Mapping[str, Any]) -> str:
    """A batch in a line: what it was, how fast, and how long the rest would take at that pace."""
    rows, pace = progress["numInputRows"], progress["processedRowsPerSecond"]
    pace = pace if math.isfinite(pace) else 0
    name = f"{progress['name']}: " if progress.get("name") else ""
    text = f"{name}batch {progress['batchId']}: {rows:,} rows, {pace:,.0f} rows/s"
    left = behind(progress)
    if not left:
        return text
    return f"{text}, {left / pace:,.1f} s behind" if pace else f"{text}, {left:,} rows behind"


def behind(progress: Mapping[str, Any]) -> int:
    """Rows that are there and were not read when a batch began."""
    return sum(_behind(source) for source in progress["sources"])


def _behind(source: Mapping[str, Any]) -> int:
    """Rows between where a source is and its end; 0 of a source whose offsets are no counts by queue."""
    try:
        done, end = (json.loads(source[name]) for name in ("endOffset", "latestOffset"))
    except (TypeError, ValueError):
        return 0
    return _difference(done, end)


def _difference(done: Any, end: Any) -> int:
    if isinstance(end, dict):
        told = done if isinstance(done, dict) else {}
        return sum(_difference(told.get(name, 0), value) for name, value in end.items())
    are_counts = isinstance(done, int) and isinstance(end, int)
    return max(0, end - done) if are_counts else 0
