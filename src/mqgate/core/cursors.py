"""Cursors of lists: the numbers of the last item of a page, in decimal digits and with dots between them."""

from mqgate.core.errors import InvalidValue

__all__ = ["MAX_ROW", "invalid_cursor", "parse_cursor"]

# The next number still fits into a signed 64-bit integer, as SQLite and PostgreSQL store it.
MAX_ROW = (1 << 62) - 1


def parse_cursor(cursor: str, *limits: int) -> tuple[int, ...]:
    """Return as many numbers as there are limits; InvalidValue if one is missing, malformed or above its limit."""
    parts = cursor.split(".")
    if len(parts) != len(limits):
        raise invalid_cursor()
    # Digits are counted first, because Python refuses to parse thousands of them.
    if not all(
        part.isascii() and part.isdigit() and len(part) <= len(str(limit)) and int(part) <= limit
        for part, limit in zip(parts, limits, strict=True)
    ):
        raise invalid_cursor()
    return tuple(map(int, parts))


def invalid_cursor() -> InvalidValue:
    return InvalidValue("use the cursor that the page before gave as next", field="cursor")
