"""JSON in: strict, once, with errors that say what to mend."""

import json
import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from mqgate.core.errors import InvalidJson, InvalidValue, UnknownField
from mqgate.core.times import parse_instant
from mqgate.http.exchange import Request

_T = TypeVar("_T")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_MEMBER = re.compile(rb'"([A-Za-z]++)"\s*+:')
_PLACE = re.compile(r" - at `\$?\.?(.*)`$")


def decode(raw: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """A body as its structure; refuses bad UTF-8, repeated members, unknown members and wrong types."""
    found = decode_outside(raw, decoder)
    refuse_repeats(raw)
    return found


def decode_flat(raw: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """As `decode`, for structures whose members are no objects and have plain names: mostly a look is enough."""
    found = decode_outside(raw, decoder)
    names = _MEMBER.findall(raw)
    # A name may be written in escapes, and a text may look like a member: then it is read again, as always.
    if b"\\" in raw or len(set(names)) < len(names):
        refuse_repeats(raw)
    return found


def decode_outside(raw: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """As `decode`, but whoever asks looks for repeated members itself."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"mend the JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"mend the JSON: {error}") from None


def explain(error: msgspec.ValidationError) -> UnknownField | InvalidValue:
    """A validation error in our words, naming the member."""
    text = str(error)
    place = _PLACE.search(text)
    field = place[1] if place else ""
    unknown = _UNKNOWN.match(text)
    if unknown:
        name = f"{field}.{unknown[1]}" if field else unknown[1]
        return UnknownField(f"{name} is not known here: leave it out", field=name)
    missing = _MISSING.match(text)
    if missing:
        name = f"{field}.{missing[1]}" if field else missing[1]
        return InvalidValue(f"{name} is needed", field=name)
    return InvalidValue(_PLACE.sub("", text), field=field)


def refuse_repeats(raw: bytes) -> None:
    """Refuse an object that has a member twice: one of the two would be lost silently."""
    try:
        _strict.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise InvalidJson(f"mend the JSON: {error}") from None
    except RecursionError:
        raise InvalidJson("the JSON is nested too deeply") from None
    except ValueError as error:
        # Larger numbers than Python parses, and whatever else the first decoder let through unread.
        raise InvalidJson(f"mend the JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValue(f"{twice} is given twice: say it once", field=twice)
    return found


_strict = json.JSONDecoder(object_pairs_hook=_object)


def query_instant(text: str | None, field: str) -> datetime | None:
    """An instant in a query: RFC 3339, or milliseconds as digits."""
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 16  # noqa: PLR2004 - more is no instant
    return parse_instant(int(text) if is_number else text, field)


def query(request: Request, wanted: type[_T]) -> _T:
    """The query's parameters as their structure."""
    try:
        return msgspec.convert(request.query(), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise explain(error) from None
