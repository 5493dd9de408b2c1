"""Responses as aligned tables for people, and as the JSON of the API for programs.

Responses contain text of other users, so unprintable characters are escaped before they reach the terminal.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["as_json", "examples", "note", "plain", "render", "table"]

Row = Mapping[str, Any]
_DURATIONS = frozenset(
    {"retention", "visibility", "clientTtl", "oldestAge", "drainTime", "backoff", "backoff.initial", "backoff.max"}
)
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))


def as_json(response: Any) -> str:
    """Return a response as indented JSON."""
    return json.dumps(response, ensure_ascii=False, indent=2)


def examples(*lines: str) -> str:
    """Return the examples section of a help text."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def note(text: str) -> None:
    """Print a note to stderr, so that a pipe does not receive it."""
    click.echo(f"note: {plain(text)}", err=True)


def plain(text: str) -> str:
    """Return the text with unprintable characters escaped, such as line ends and terminal control sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def render(response: Row, columns: Sequence[str] | None = None) -> str:
    """Return the single values of a response, followed by each of its lists as a table."""
    lists = {name: value for name, value in response.items() if _is_rows(value)}
    single = {name: value for name, value in response.items() if name not in lists and name != "next"}
    parts = [_fields(single)] if single else []
    parts += [table(rows, columns) for rows in lists.values()]
    return "\n\n".join(parts)


def table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """Return rows under a heading. Without `columns`, show every member that occurs in a row."""
    if not rows:
        return "(none)"
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_heading(name).upper() for name in names]]
    cells += [[_cell(name, row.get(name)) for name in names] for row in rows]
    return _aligned(cells)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _fields(values: Row) -> str:
    return _aligned([[_heading(name), _cell(name, value)] for name, value in values.items()])


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(_width(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _heading(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _duration(value) if name in _DURATIONS else str(value).removesuffix(".0")
    if isinstance(value, dict):
        # Separated by commas, a backoff can be used as an option again.
        separator = "," if name == "backoff" else " "
        return separator.join(f"{member}={_cell(f'{name}.{member}', inner)}" for member, inner in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(_cell(name, item) for item in value) or "-"
    return plain(str(value))


def _duration(seconds: float) -> str:
    # One unit only, so that the text can be used as an option again.
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
