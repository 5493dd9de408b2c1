"""What becomes of chosen dead letters, in requests short enough to wait for."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from mqgate.cli.output import note
from mqgate.cli.session import Session

__all__ = ["RedriveOutcomes", "in_slices"]

_MOST_IDS = 1_000
# Seconds that one request may take at a given rate: a gateway refuses a minute, and a person wants to see an end.
_STRETCH = 5
_NOT_DONE = {"not_found", "failed", "unknown"}
Act = Callable[[Sequence[str]], dict[str, Any]]


def in_slices(
    act: Act, ids: Iterable[str], rate: float | None = None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """The answers for all ids, each id once, however many there are; together no faster than `rate` a second."""
    chosen = list(dict.fromkeys(ids))
    size = _MOST_IDS if rate is None else max(1, min(_MOST_IDS, int(rate * _STRETCH)))
    started = time.monotonic()
    for first in range(0, len(chosen), size):
        if rate is not None:
            sleep(max(0.0, started + first / rate - time.monotonic()))
        yield act(chosen[first : first + size])


class RedriveOutcomes:
    """An outcome for each message, gathered over requests."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._results: list[dict[str, Any]] = []
        self._has_more = False

    def gather(self, answers: Iterable[dict[str, Any]]) -> None:
        try:
            for answer in answers:
                self._results += answer["results"]
                self._has_more = answer["more"]
        except BaseException:
            if self._results:
                note(f"{self._count(_done)} before this")
            raise

    def show(self, *, dry_run: bool) -> None:
        """Print them; the exit code is 1 if a message was not among the dead letters, or is still there."""
        if self._session.is_json:
            self._session.show({"dryRun": dry_run, "results": self._results, "more": self._has_more})
        else:
            words = _to_be_done if dry_run else _done
            rows = [result | {"outcome": words(result["outcome"])} for result in self._results]
            self._session.show_list(rows, ("id", "outcome"))
            note(self._count(words) + ("; a dry run: nothing was changed" if dry_run else ""))
            if self._has_more:
                note("there are more than these")
        if any(result["outcome"] in _NOT_DONE for result in self._results):
            raise click.exceptions.Exit(1)

    def _count(self, words: Callable[[str], str]) -> str:
        counts = Counter(words(result["outcome"]) for result in self._results)
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no dead letters"


def _done(outcome: str) -> str:
    return outcome.replace("_", " ")


def _to_be_done(outcome: str) -> str:
    return _done(outcome) if outcome == "not_found" else f"would be {_done(outcome)}"
