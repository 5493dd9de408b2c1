"""Lua scripts: one per operation, with its contract in the header. Shared parts are put before the operation."""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

__all__ = ["SCRIPTS", "Script", "script"]


class Script(NamedTuple):
    """Lua source that Redis runs atomically."""

    name: str
    source: bytes
    sha: str


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: str) -> Script:
    source = "\n".join(_read(part) for part in parts).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _operations(mode: str) -> list[tuple[str, str]]:
    """Return the operations of a mode other than acquire, each with its file. Both modes share two of the files."""
    own = [(operation, f"{mode}_{operation}") for operation in ("settle", "report_pull", "settle_dead", "positions")]
    return [*own, ("create_state", "create_state"), ("seek", "seek")]


_QUEUE = ("scope", "queue_state")
_MESSAGE = ("scope", "message_state", "message_slow_path")

SCRIPTS = (
    _script("queue_acquire", "request", "queue_row", "queue_fast_path", *_QUEUE, "queue_acquire"),
    _script("message_acquire", "request", "message_row", "message_fast_path", *_MESSAGE, "message_acquire"),
    *(_script(f"queue_{name}", "request", "queue_row", *_QUEUE, file) for name, file in _operations("queue")),
    *(_script(f"message_{name}", "request", "message_row", *_MESSAGE, file) for name, file in _operations("message")),
    _script("clients", "request", "message_row", "scope", "clients"),
    *(_script(name, "request", "scope", name) for name in ("committed", "forget")),
    _script("take", "take"),
)


_BY_NAME = {script.name: script for script in SCRIPTS}


def script(name: str) -> Script:
    """Return a script by its name."""
    return _BY_NAME[name]
