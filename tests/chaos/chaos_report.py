"""The report: one Markdown table of a run."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from checker import FAILURES, Findings
from history import Event, Fault

__all__ = ["Run", "written"]


class Run(NamedTuple):
    """Facts of a run that are not in the history."""

    seed: int
    seconds: float
    drained: float
    hung_up: int
    ends: list[int]


def written(run: Run, findings: Findings, recovery: Mapping[str, list[float]], events: Iterable[Event]) -> str:
    faults = Counter(event.kind for event in events if isinstance(event, Fault))
    rows = [
        ("seed", str(run.seed)),
        ("load", f"{run.seconds / 60:.1f} min, then drained in {run.drained:.0f} s"),
        *((kind, f"{count:,}") for kind, count in sorted(faults.items())),
        ("clients that hung up in mid-answer", f"{run.hung_up:,}"),
        ("gateways that ended by themselves", f"{len(run.ends):,}"),
        ("published", f"{findings.published:,}"),
        *((f"acked by `{group}`", f"{count:,}") for group, count in findings.acked.items()),
        ("acked in all", f"{findings.acked.total():,}"),
        ("recovered: publish unknown, and it came", f"{findings.recovered:,}"),
        ("stored twice after an unknown publish", f"{findings.stored_twice:,}"),
        *(
            (f"delivered again to `{group}`: {cause}", f"{count:,}")
            for group, causes in findings.causes.items()
            for cause, count in sorted(causes.items())
        ),
        *((f"**{_FAILURES[kind]}**", f"**{findings.failures[kind]:,}**") for kind in FAILURES),
    ]
    lines = [
        "## Faults under load: three gateways, two brokers, one Redis, one PostgreSQL",
        "",
        *_table(("what", "how many"), rows),
        "",
        "Seconds from a fault until producers and all groups were served again:",
        "",
        *_table(("fault", "faults", "p50", "max", "wanted"), _recovery_rows(recovery)),
        "",
    ]
    return "\n".join(lines)


_WANTED = {"gateway killed": "<= 1", "redis flushed": "<= 10", "redis killed": "<= 10"}
_FAILURES = {
    "lost": "lost",
    "unexpected": "unexpected",
    "duplicated": "duplicated without a cause",
    "order": "out of order",
    "overlap": "overlapping leases",
    "refused": "settlements refused or applied wrongly",
}


def _recovery_rows(recovery: Mapping[str, list[float]]) -> list[tuple[str, ...]]:
    return [
        (kind, str(len(times)), f"{statistics.median(times):.2f}", f"{max(times):.2f}", _WANTED.get(kind, ""))
        for kind, times in sorted(recovery.items())
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
