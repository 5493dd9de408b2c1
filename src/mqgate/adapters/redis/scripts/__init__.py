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


_BOOKS = {"queue": ("queue_book",), "message": ("message_book", "message_seldom")}

SCRIPTS = (
    *(
        _script(f"{mode}_{step}", "scope", *book, f"{mode}_{step}")
        for mode, book in _BOOKS.items()
        for step in ("acquire", "settle", "place", "bury", "positions")
    ),
    *(_script(f"{mode}_{step}", "scope", *book, step) for mode, book in _BOOKS.items() for step in ("open", "seek")),
    _script("clients", "scope", "clients"),
    _script("committed", "scope", "committed"),
    _script("forget", "scope", "forget"),
    _script("take", "take"),
)


_BY_NAME = {each.name: each for each in SCRIPTS}


def script(name: str) -> Script:
    """A script by its name."""
    return _BY_NAME[name]
