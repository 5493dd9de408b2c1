"""How many connections a process accepts depends on its limit of open files."""

import resource

import pytest

from mqgate.cli import serving

HARD = 100_000


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of this process as its kernel would report them; the last one counts."""
    limits = [(1_024, HARD)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    return limits


def test_a_low_limit_is_raised_to_what_the_connections_need(limits: list[tuple[int, int]]) -> None:
    """Login shells start with 1,024 files, and a gateway is configured for more connections than that."""
    assert serving._allowed_connections(16_384) == 16_384
    assert limits[-1][0] >= 16_384


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), ValueError("limit exceeds maximum")])
def test_a_limit_that_cannot_be_raised_lowers_the_number_of_connections(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """In a sandbox that denies it the gateway still starts, and does not run out of files later."""

    def deny(_: int, limit: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "setrlimit", deny)

    assert 0 < serving._allowed_connections(16_384) < 1_024
