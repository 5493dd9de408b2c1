"""A parser for the JSON dialect of the servers, in which keys may be numbers and even objects.

    {{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}}        {0:"127.0.0.1:10911"}

A number as a key becomes its text; an object as a key becomes a tuple of its (name, value) pairs, sorted by name.
"""

import json
import re
from typing import Any

from mqgate.rocketmq.errors import RemoteProtocolError

__all__ = ["parse"]

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_MAX_DEPTH = 64
_scan_text = json.JSONDecoder(strict=False).raw_decode


def parse(body: bytes) -> Any:
    """Return the value of a body. Raise RemoteProtocolError if it is malformed."""
    try:
        text = body.decode()
        value, at = _value(text, _SPACE.match(text).end(), 0)  # type: ignore[union-attr] # matches nothing, too
    except (ValueError, IndexError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed JSON in a body: {error}") from None
    if at != len(text):
        raise RemoteProtocolError("a body contains data after its JSON")
    return value


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr] # matches nothing, too


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    first = text[at]
    if first == "{":
        return _object(text, at + 1, depth)
    if first == "[":
        return _list(text, at + 1, depth)
    if first == '"':
        value, end = _scan_text(text, at)
        return value, _skip(text, end)
    found = _SCALAR.match(text, at)
    if found is None:
        raise ValueError(f"unexpected {first!r} at {at}")
    return json.loads(found[0]), _skip(text, found.end())


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    found: dict[Any, Any] = {}
    at = _skip(text, at)
    if text[at] == "}":
        return found, _skip(text, at + 1)
    while True:
        key, at = _value(text, at, depth + 1)
        if text[at] != ":":
            raise ValueError(f"no colon at {at}")
        found[_key(key)], at = _value(text, _skip(text, at + 1), depth + 1)
        if text[at] == "}":
            return found, _skip(text, at + 1)
        if text[at] != ",":
            raise ValueError(f"neither comma nor brace at {at}")
        at = _skip(text, at + 1)


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at)
    if text[at] == "]":
        return found, _skip(text, at + 1)
    while True:
        value, at = _value(text, at, depth + 1)
        found.append(value)
        if text[at] == "]":
            return found, _skip(text, at + 1)
        if text[at] != ",":
            raise ValueError(f"neither comma nor bracket at {at}")
        at = _skip(text, at + 1)


def _key(value: Any) -> Any:
    # Nested objects and lists are not hashable: `parse` translates the TypeError. No server sends such keys.
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return value if isinstance(value, str) else json.dumps(value)
