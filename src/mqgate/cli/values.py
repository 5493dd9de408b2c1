"""Command-line values, and their names in the API."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from mqgate.core.errors import InvalidValue
from mqgate.core.times import parse_duration

__all__ = [
    "LIFTED",
    "backoff",
    "duration",
    "given",
    "instant",
    "maybe",
    "name",
    "offset",
    "pair",
    "rate_limit",
    "span",
    "wait",
]

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MAX_WAIT = timedelta(seconds=60)
LIFTED = object()


def given(**options: Any) -> dict[str, Any]:
    """Return the given options under their API names. LIFTED becomes null."""
    return {
        _camel(option): None if value is LIFTED else value for option, value in options.items() if value is not None
    }


def _camel(option: str) -> str:
    first, *rest = option.split("_")
    return first + "".join(word.capitalize() for word in rest)


def maybe(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that also accepts `none`, which removes the setting."""
    return lambda text: LIFTED if text == "none" else kind(text)


def name(text: str) -> str:
    """Return the name. Raise BadParameter if it is empty, because an empty name would address the list."""
    if not text:
        raise click.BadParameter("a name must not be empty")
    return text


def duration(text: str) -> float | str:
    """Return a bare number as seconds. The gateway checks other texts, so that there is one grammar."""
    return float(text) if _NUMBER.fullmatch(text) else text


def span(text: str) -> timedelta:
    """Return a duration that no gateway checks."""
    try:
        return parse_duration(duration(text), "it")
    except InvalidValue as error:
        raise click.BadParameter(str(error)) from error


def wait(text: str) -> timedelta:
    """Return the wait of a receive. It is checked here, because the read time-out of the client depends on it."""
    parsed = span(text)
    if parsed > _MAX_WAIT:
        raise click.BadParameter("the maximum is 60s")
    return parsed


def instant(text: str) -> int | str:
    """Return bare digits as milliseconds since 1970. The gateway checks other texts."""
    return int(text) if re.fullmatch("[0-9]+", text) else text


def rate_limit(text: str) -> float | dict[str, float]:
    rate, colon, burst = text.partition(":")
    if not _NUMBER.fullmatch(rate) or (colon and not _NUMBER.fullmatch(burst)):
        raise click.BadParameter(
            f"{text!r} is not a rate such as 100 (messages per second) or 100:500 (with a burst of 500)"
        )
    return {"rate": float(rate), "burst": float(burst)} if colon else float(rate)


def backoff(text: str) -> dict[str, float | str] | list[float | str]:
    parts = [part.strip() for part in text.split(",")]
    if "=" in text:
        return {member: duration(value) for member, value in map(pair, parts)}
    return [duration(part) for part in parts]


def pair(text: str) -> tuple[str, str]:
    member, equals, value = text.partition("=")
    if not member or not equals:
        raise click.BadParameter(f"{text!r} is not of the form name=value")
    return member, value


def offset(text: str) -> tuple[str, int]:
    queue, _, number = text.rpartition("=")
    if not queue or not re.fullmatch("[0-9]+", number):
        raise click.BadParameter(f"{text!r} is not a queue and an offset such as local:3=17")
    return queue, int(number)
