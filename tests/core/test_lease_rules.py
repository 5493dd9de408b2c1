"""The rules of settlement outcomes and batch sizes."""

import pytest

from mqgate.core.lease import SettlementOutcome, batch_size


def test_three_outcomes_count_as_done() -> None:
    """The API returns 200 for these three and an error for the others."""
    assert [outcome for outcome in SettlementOutcome if outcome.is_done] == [
        SettlementOutcome.APPLIED,
        SettlementOutcome.DUPLICATE,
        SettlementOutcome.LATE_APPLIED,
    ]


@pytest.mark.parametrize(
    ("max_attempts", "sizes"),
    [
        (1, [1]),
        (2, [32, 1]),
        (3, [32, 1, 1]),
        (4, [32, 32, 1, 1]),
        (16, [32] * 8 + [1] * 8),
    ],
)
def test_the_second_half_of_the_attempts_delivers_single_messages(max_attempts: int, sizes: list[int]) -> None:
    """A bad message must not exhaust the other messages of its batch."""
    assert [batch_size(32, attempt, max_attempts) for attempt in range(1, max_attempts + 1)] == sizes
