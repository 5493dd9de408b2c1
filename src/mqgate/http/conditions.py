"""Conditional requests."""

from mqgate.core.errors import InvalidValue
from mqgate.http.exchange import Request

__all__ = ["must_be_new"]


def must_be_new(request: Request) -> bool:
    """Return whether the client sent `If-None-Match: *`: create the entry, but do not change an existing one."""
    value = request.headers.get(b"if-none-match")
    if value is None:
        return False
    if value.strip() != b"*":
        raise InvalidValue("If-None-Match must be *. Entries have no entity tags.", field="if-none-match")
    return True
