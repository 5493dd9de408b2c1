"""The scripts: one operation each, its contract in its head; what they share is put before them."""

import hashlib
from importlib import resources
from typing import NamedTuple

__all__ = ["SCRIPTS", "Script", "script"]


class Script(NamedTuple):
    """What runs inside Redis as one step."""

    name: str
    source: bytes
    sha: str


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: str) -> Script:
    source = "\n".join(_read(part) for part in parts).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


_ALL = ("request", "scope")
_QUEUE = ("queue_row", *_ALL, "queue_book")
_MESSAGE = (*_ALL, "message_book", "message_seldom")

SCRIPTS = (
    _script("queue_acquire", "request", "queue_row", "queue_usual", "scope", "queue_book", "queue_acquire"),
    _script("message_acquire", *_MESSAGE, "message_acquire"),
    *(_script(f"queue_{step}", *_QUEUE, f"queue_{step}") for step in ("settle", "place", "bury", "positions")),
    *(_script(f"message_{step}", *_MESSAGE, f"message_{step}") for step in ("settle", "place", "bury", "positions")),
    *(_script(f"queue_{step}", *_QUEUE, step) for step in ("open", "seek")),
    *(_script(f"message_{step}", *_MESSAGE, step) for step in ("open", "seek")),
    *(_script(step, *_ALL, step) for step in ("clients", "committed", "forget")),
    _script("take", "take"),
)


_BY_NAME = {each.name: each for each in SCRIPTS}


def script(name: str) -> Script:
    """A script by its name."""
    return _BY_NAME[name]
