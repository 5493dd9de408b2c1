"""Parsing and formatting of durations and instants."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
LATEST_MS = 253_402_300_799_999
LONGEST = timedelta(days=36_500)


def parse_duration(value: float | str, field: str) -> timedelta:
    """Return the duration of a number of seconds, or of text such as 1500ms 30s 15m 2h 10d."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise InvalidValue(f'{field} must be seconds or text such as "1500ms" "30s" "15m" "2h" "10d"', field=field)
        value = int(match[1]) * _UNITS[match[2]]
    if value < 0:
        raise InvalidValue(f"{field} must not be negative", field=field)
    if not math.isfinite(value) or value > LONGEST.total_seconds():
        raise InvalidValue(f"{field} must be at most {LONGEST.days} days", field=field)
    return timedelta(seconds=value)


def parse_instant(value: int | str, field: str) -> datetime:
    """Return the instant of RFC 3339 text with a zone, or of milliseconds since 1970."""
    if isinstance(value, int):
        if not 0 <= value <= LATEST_MS:
            raise InvalidValue(f"{field} must be milliseconds since 1970, up to the year 9999", field=field)
        return instant(value)
    if _RFC3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise InvalidValue(
        f"{field} must be RFC 3339 with a zone, such as 2026-01-31T12:00:00Z, or milliseconds since 1970",
        field=field,
    )


def format_instant(value: datetime) -> str:
    """Return an instant as RFC 3339 text in UTC with milliseconds."""
    return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


@lru_cache(maxsize=4096)
def format_ms(ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 text. Cached because messages of a batch often share a time."""
    return format_instant(instant(ms))
