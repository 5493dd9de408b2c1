"""The report: one Markdown table of a run."""

import statistics
from collections.abc import Iterable, Sequence

from attack_run import KIB, AbuseRun, Result

__all__ = ["written"]

_HEAD = (
    "attack",
    "connections",
    "p99 quiet",
    "p99 attacked",
    "times",
    "requests",
    "errors",
    "closed by the gateway",
    "peak MiB",
    "MiB after",
    "result",
)


def written(run: AbuseRun, results: Iterable[Result]) -> str:
    memory = (
        f"Memory: {run.baseline.rss // KIB} MiB before the attacks; allowed are {run.max_rss // KIB} MiB during, and "
        f"{run.max_rss_after // KIB} MiB after an attack. The peak is that of the process until then."
    )
    lines = [
        "## Hostile clients: what a client with a key notices",
        "",
        "One gateway on the embedded engine with default settings. The attacker is another process. `requests` are",
        "those of the client with a key during the attack. Floods use CPU, so only their errors count. Connections,",
        "files and body bytes were back at their baseline after each attack.",
        "",
        memory,
        "",
        *_table([_HEAD, *(_row(run, result) for result in results)]),
        "",
    ]
    return "\n".join(lines)


def _row(run: AbuseRun, result: Result) -> tuple[str, ...]:
    closed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.closed.items()) if count)
    return (
        result.attack.name,
        f"{result.connections:,}",
        *_latencies(result),
        f"{result.requests:,}",
        f"{len(result.errors)}",
        closed,
        f"{result.peak // KIB}",
        f"{result.after.rss // KIB}" if result.after else "",
        "; ".join(run.broken_promises(result)) or "withstood",
    )


def _latencies(result: Result) -> tuple[str, str, str]:
    if not result.quiet or not result.attacked:
        return "", "", "flood" if result.attack.is_flood else ""
    quiet, attacked = statistics.median(result.quiet), statistics.median(result.attacked)
    return f"{quiet * 1000:.2f} ms", f"{attacked * 1000:.2f} ms", f"{result.slowdown:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
