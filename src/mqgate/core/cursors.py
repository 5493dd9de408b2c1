"""Cursors of lists: the numbers of the last item of a page, in decimal digits, separated by dots."""

from mqgate.core.errors import InvalidValue

__all__ = ["MAX_ROW", "invalid_cursor", "parse_cursor"]

# The next number still fits into a signed 64-bit integer, as SQLite and PostgreSQL store it.
MAX_ROW = (1 << 62) - 1


def parse_cursor(cursor: str, *limits: int) -> tuple[int, ...]:
    """Return one number per limit. Raise InvalidValue if one is missing, malformed or above its limit."""
    parts = cursor.split(".")
    if len(parts) != len(limits):
        raise invalid_cursor()
    # The length is checked first because `int` raises for thousands of digits.
    if not all(
        part.isascii() and part.isdigit() and len(part) <= len(str(limit)) and int(part) <= limit
        for part, limit in zip(parts, limits, strict=True)
    ):
        raise invalid_cursor()
    return tuple(map(int, parts))


def invalid_cursor() -> InvalidValue:
    return InvalidValue("cursor is invalid: use the value of `next` from the previous page", field="cursor")
