"""The scripts: one operation each, its contract in its head; what they share is put before them."""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

__all__ = ["SCRIPTS", "Script", "script"]


class Script(NamedTuple):
    """What runs inside Redis as one step."""

    name: str
    source: bytes
    sha: str


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: str) -> Script:
    source = "\n".join(_read(part) for part in parts).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _steps(mode: str) -> list[tuple[str, str]]:
    """The other steps of a mode and their files; two are the same for both."""
    own = [(step, f"{mode}_{step}") for step in ("settle", "place", "bury", "positions")]
    return [*own, ("open", "open"), ("seek", "seek")]


_QUEUE = ("scope", "queue_book")
_MESSAGE = ("scope", "message_book", "message_seldom")

SCRIPTS = (
    _script("queue_acquire", "request", "queue_row", "queue_usual", *_QUEUE, "queue_acquire"),
    _script("message_acquire", "request", "message_row", "message_usual", *_MESSAGE, "message_acquire"),
    *(_script(f"queue_{each}", "request", "queue_row", *_QUEUE, step) for each, step in _steps("queue")),
    *(_script(f"message_{each}", "request", "message_row", *_MESSAGE, step) for each, step in _steps("message")),
    _script("clients", "request", "message_row", "scope", "clients"),
    *(_script(each, "request", "scope", each) for each in ("committed", "forget")),
    _script("take", "take"),
)


_BY_NAME = {each.name: each for each in SCRIPTS}


def script(name: str) -> Script:
    """A script by its name."""
    return _BY_NAME[name]
