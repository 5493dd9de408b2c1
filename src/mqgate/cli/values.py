"""How settings are written on a command line, and what the API calls them."""

import re
from collections.abc import Callable
from typing import Any

import click

__all__ = ["backoff", "duration", "given", "maybe", "name", "offset", "pair", "rate_limit"]

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_UNSET = object()


def given(**options: Any) -> dict[str, Any]:
    """The settings that the user wrote, as the API names them; `none` becomes null."""
    return {
        _camel(option): None if value is _UNSET else value for option, value in options.items() if value is not None
    }


def _camel(option: str) -> str:
    first, *rest = option.split("_")
    return first + "".join(word.capitalize() for word in rest)


def maybe(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same kind of value, or the word `none` to lift the setting."""
    return lambda text: _UNSET if text == "none" else kind(text)


def name(text: str) -> str:
    """The gateway knows what names may be; an empty one would address the list instead."""
    if not text:
        raise click.BadParameter("a name must not be empty")
    return text


def duration(text: str) -> float | str:
    """A bare number is seconds; the gateway judges everything else, so that there is one grammar."""
    return float(text) if _NUMBER.fullmatch(text) else text


def rate_limit(text: str) -> float | dict[str, float]:
    rate, colon, burst = text.partition(":")
    if not _NUMBER.fullmatch(rate) or (colon and not _NUMBER.fullmatch(burst)):
        raise click.BadParameter(f"{text!r} is neither like 100 (messages a second) nor like 100:500 (500 at once)")
    return {"rate": float(rate), "burst": float(burst)} if colon else float(rate)


def backoff(text: str) -> dict[str, float | str] | list[float | str]:
    parts = [part.strip() for part in text.split(",")]
    if "=" in text:
        return {member: duration(value) for member, value in map(pair, parts)}
    return [duration(part) for part in parts]


def pair(text: str) -> tuple[str, str]:
    member, equals, value = text.partition("=")
    if not member or not equals:
        raise click.BadParameter(f"{text!r} is not like name=value")
    return member, value


def offset(text: str) -> tuple[str, int]:
    queue, _, number = text.rpartition("=")
    if not queue or not re.fullmatch("[0-9]+", number):
        raise click.BadParameter(f"{text!r} is not like local:3=17")
    return queue, int(number)
