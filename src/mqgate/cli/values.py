"""How settings are written on a command line, and what the API calls them."""

from collections.abc import Mapping
from typing import Any

import click

__all__ = ["BACKOFF", "DURATION", "NAME", "OFFSET", "PAIR", "RATE_LIMIT", "given", "maybe"]

_UNSET = object()


def given(**options: Any) -> dict[str, Any]:
    """The settings that the user wrote; `none` becomes null, what was left out stays out."""
    return {
        _camel(name): None if value is _UNSET else value
        for name, value in options.items()
        if value is not None and value != ()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class _Name(click.ParamType[str]):
    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value or self.fail("a name must not be empty", param, ctx)


class _Duration(click.ParamType[Any]):
    """A bare number is seconds; the gateway judges everything else, so that there is one grammar."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return float(value)
        except ValueError:
            return value


class _RateLimit(click.ParamType[Any]):
    name = "rate[:burst]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        rate, colon, burst = value.partition(":")
        try:
            return {"rate": float(rate), "burst": float(burst)} if colon else float(rate)
        except ValueError:
            self.fail(
                f"{value!r} is not like 100 (messages a second) or 100:500 (at most 500 at once)", param, ctx
            )


class _Backoff(click.ParamType[Any]):
    name = "backoff"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not any("=" in part for part in parts):
            return [DURATION.convert(part, param, ctx) for part in parts]
        members = dict(PAIR.convert(part, param, ctx) for part in parts)
        return {name: DURATION.convert(text, param, ctx) for name, text in members.items()}


class _Pair(click.ParamType[tuple[str, str]]):
    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not like name=value", param, ctx)
        return name, text


class _Offset(click.ParamType[tuple[str, int]]):
    name = "queue=offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        queue, _, offset = value.rpartition("=")
        if not queue or not (offset.isascii() and offset.isdecimal()):
            self.fail(f"{value!r} is not like local:3=17", param, ctx)
        return queue, int(offset)


class _Maybe(click.ParamType[Any]):
    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind
        self.name = f"{kind.name}|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value is _UNSET or value == "none":
            return _UNSET
        return self._kind.convert(value, param, ctx)


def maybe(kind: click.ParamType[Any]) -> click.ParamType[Any]:
    """The same, or the word `none` to lift the setting."""
    return _Maybe(kind)


NAME = _Name()
DURATION = _Duration()
RATE_LIMIT = _RateLimit()
BACKOFF = _Backoff()
PAIR = _Pair()
OFFSET = _Offset()
