"""The error tree and the HTTP status of every error."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqgate.core import errors
from mqgate.core.errors import MqgateError
from mqgate.http.errors import STATUS, headers_of, problem

ROOT = Path(__file__).parents[2]


def leaves(error: type[MqgateError] = MqgateError) -> Iterator[type[MqgateError]]:
    kinds = error.__subclasses__()
    if not kinds:
        yield error
    for kind in kinds:
        yield from leaves(kind)


OURS = [error for error in leaves() if error.__module__.startswith("mqgate.")]


def test_every_error_has_a_status() -> None:
    """A leaf without one would become a 500."""
    assert {error.__name__ for error in OURS} == {error.__name__ for error in STATUS}


def test_error_codes_are_unique() -> None:
    """Clients decide by the code."""
    codes = [error.code for error in OURS]

    assert sorted(codes) == sorted(set(codes))


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.code)
def test_every_error_has_a_problem_document(error: type[MqgateError]) -> None:
    """All have the same members, a status of 4xx or 5xx, and Retry-After where a retry helps."""
    document = problem(error("what to do", allow="GET", field="x"))

    assert set(document) >= {"status", "code", "title", "detail", "retryable"}
    assert 400 <= STATUS[error] < 600
    assert document["code"] == error.code
    assert error.code.isidentifier()
    assert error.code == error.code.lower()
    names = {name for name, _ in headers_of(error("what to do", allow="GET"))}
    assert (b"retry-after" in names) == (STATUS[error] in {429, 503})


def test_retryable_says_whether_the_same_call_may_succeed_later() -> None:
    """Errors of the request are never retryable, temporary errors of the server always are."""
    for error in OURS:
        if issubclass(error, errors.BadInput | errors.NotFound | errors.AccessDenied):
            assert not error.retryable, error
        if issubclass(error, errors.Busy):
            assert error.retryable, error


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.code)
def test_every_error_is_in_the_documented_tree(error: type[MqgateError]) -> None:
    """Readers rely on the tree in the docstring of core/errors.py."""
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__.replace("|", " ").split()


def test_every_code_is_documented() -> None:
    """A stable code is useful only if its meaning is documented."""
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))

    assert [error.code for error in OURS if f"`{error.code}`" not in pages] == []
