"""Blocking methods made of async ones.

A coroutine that awaits only the blocking transport never suspends. Sending None to it once runs it to its end, in the
calling thread, without an event loop. So every operation is written once, as a coroutine, and its blocking form has
the same signature.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

__all__ = ["Facade", "blocking", "run_blocking"]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Facade(Generic[A]):
    """The blocking form of an async object."""

    def __init__(self, core: A) -> None:
        self.core = core


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Return the blocking form of an async method."""

    @wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_blocking(method(self.core, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], R]", call)


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never suspends. Raise RuntimeError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call suspended")
