"""Outcomes of redriven or deleted dead letters, requested in slices that finish within seconds."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from mqgate.cli.output import note
from mqgate.cli.session import Session

__all__ = ["RedriveOutcomes", "in_slices"]

_MAX_IDS = 1_000
# Maximum duration of one request at a given rate. A gateway refuses requests that would take a minute.
_MAX_SECONDS = 5
_NOT_DONE = {"not_found", "failed", "unknown"}
Act = Callable[[Sequence[str]], dict[str, Any]]


def in_slices(
    act: Act, ids: Iterable[str], rate: float | None = None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Yield the responses for all distinct ids, at most `rate` ids per second."""
    distinct = list(dict.fromkeys(ids))
    size = _MAX_IDS if rate is None else max(1, min(_MAX_IDS, int(rate * _MAX_SECONDS)))
    started = time.monotonic()
    for first in range(0, len(distinct), size):
        if rate is not None:
            sleep(max(0.0, started + first / rate - time.monotonic()))
        yield act(distinct[first : first + size])


class RedriveOutcomes:
    """One outcome for each message, collected over several requests."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._results: list[dict[str, Any]] = []
        self._has_more = False

    def collect(self, responses: Iterable[dict[str, Any]]) -> None:
        try:
            for response in responses:
                self._results += response["results"]
                self._has_more = response["more"]
        except BaseException:
            if self._results:
                note(f"{self._count(_done)} before this")
            raise

    def show(self, *, dry_run: bool) -> None:
        """Print the outcomes. Exit with code 1 if a message was not a dead letter, or still is one."""
        if self._session.is_json:
            self._session.show({"dryRun": dry_run, "results": self._results, "more": self._has_more})
        else:
            words = _planned if dry_run else _done
            rows = [result | {"outcome": words(result["outcome"])} for result in self._results]
            self._session.show_list(rows, ("id", "outcome"))
            note(self._count(words) + ("; dry run, nothing was changed" if dry_run else ""))
            if self._has_more:
                note("the group has more dead letters")
        if any(result["outcome"] in _NOT_DONE for result in self._results):
            raise click.exceptions.Exit(1)

    def _count(self, words: Callable[[str], str]) -> str:
        counts = Counter(words(result["outcome"]) for result in self._results)
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no dead letters"


def _done(outcome: str) -> str:
    return outcome.replace("_", " ")


def _planned(outcome: str) -> str:
    return _done(outcome) if outcome == "not_found" else f"would be {_done(outcome)}"
