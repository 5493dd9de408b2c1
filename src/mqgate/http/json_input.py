"""Strict decoding of JSON requests, with errors that name the member to correct.

If an object has a member twice, the last one counts, as in every common JSON parser.
"""

from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mqgate.core.errors import InvalidJson, InvalidValue, UnknownField
from mqgate.core.times import parse_instant
from mqgate.http.exchange import Request

__all__ = ["ItemSplitter", "decode", "explain", "is_too_deep", "query", "query_instant"]

_T = TypeVar("_T")
_UNKNOWN = "Object contains unknown field `"
_MISSING = "Object missing required field `"
_PLACE = " - at `$"
# Callers choose the names that error texts repeat.
_MAX_QUOTED = 100


def decode(raw: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return a body as its structure; raise for bad UTF-8, unknown members and wrong types."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    except RecursionError as error:
        raise _too_deep() from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"Correct the JSON: {str(error)[:_MAX_QUOTED]}") from None


def _too_deep() -> InvalidJson:
    return InvalidJson("The JSON is nested too deeply. Use fewer levels.")


def is_too_deep(error: InvalidJson) -> bool:
    """Return whether the JSON has more levels than the decoder's stack."""
    return isinstance(error.__cause__, RecursionError)


class ItemSplitter:
    """Splits a JSON array into its items without decoding them, and stops at the first item over the limit."""

    def __init__(self, field: str, max_items: int) -> None:
        # An array type of at most `max_items` elements. A list type would decode all items before they can be counted.
        items = [(f"item{number}", Raw | UnsetType, UNSET) for number in range(max_items)]
        array = msgspec.defstruct("Items", items, array_like=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(array)
        self._max_items = max_items
        self._refusal = InvalidValue(f"{field} must have 1 to {max_items} items.", field=field, limit=max_items)

    def split(self, array: Raw) -> list[bytes]:
        """Return the text of each item; raise InvalidValue for no array, an empty one or too many items."""
        try:
            items = msgspec.structs.astuple(self._decoder.decode(array))
        except msgspec.ValidationError:
            raise self._refusal from None
        except RecursionError as error:
            raise _too_deep() from error
        count = items.index(UNSET) if items[-1] is UNSET else len(items)
        return self.checked([bytes(item) for item in items[:count]])

    def checked(self, items: list[bytes]) -> list[bytes]:
        """Return the items; raise InvalidValue if there are none or too many."""
        if not 1 <= len(items) <= self._max_items:
            raise self._refusal
        return items


def explain(error: msgspec.ValidationError) -> UnknownField | InvalidValue:
    """Return a validation error as one of ours that names the member."""
    # Plain text operations: the caller chooses the name inside, and a pattern could backtrack over it.
    text, place, path = str(error).rpartition(_PLACE)
    if not place:
        text, path = str(error), ""
    path = _cut(path.removesuffix("`").removeprefix("."))
    for start, kind in ((_UNKNOWN, UnknownField), (_MISSING, InvalidValue)):
        if text.startswith(start):
            name = _cut(text.removeprefix(start).removesuffix("`"))
            field = f"{path}.{name}" if path else name
            remedy = "is unknown. Remove it or check its spelling." if kind is UnknownField else "is required."
            return kind(f"{field} {remedy}", field=field)
    return InvalidValue(_cut(text), field=path)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def query_instant(text: str | None, field: str) -> datetime | None:
    """Return an instant of a query: RFC 3339, or milliseconds as digits."""
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 16  # noqa: PLR2004 - longer numbers are no instants
    return parse_instant(int(text) if is_number else text, field)


def query(request: Request, wanted: type[_T]) -> _T:
    """Return the parameters of the query string as their structure."""
    try:
        return msgspec.convert(request.query(), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise explain(error) from None
