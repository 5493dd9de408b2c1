"""The rules of settlement outcomes and batch sizes."""

from datetime import timedelta

import pytest

from mqgate.core.lease import Lease, QueueLeaseState, SettlementOutcome, Verb, batch_size, decide_outcome
from mqgate.testing.clock import NOON

LEASE = Lease("workers", "", "local:0", 10, 14, 5, "inc")
HELD = QueueLeaseState("inc", 5, 0, 7, 10, NOON + timedelta(seconds=30))


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize(
    ("standing", "spent_by_same", "outcome"),
    [
        (None, False, SettlementOutcome.GONE),
        (HELD._replace(incarnation="other"), False, SettlementOutcome.GONE),
        (HELD._replace(incarnation="other"), True, SettlementOutcome.GONE),
        (HELD._replace(epoch=9, revoked_epoch=8), False, SettlementOutcome.GONE),
        (HELD._replace(revoked_epoch=5), False, SettlementOutcome.GONE),
        (HELD._replace(epoch=6), False, SettlementOutcome.LOST),
        (HELD._replace(epoch=6, min=11), False, SettlementOutcome.GONE),
        (HELD._replace(epoch=6), True, SettlementOutcome.DUPLICATE),
        (HELD, True, SettlementOutcome.DUPLICATE),
        (HELD._replace(committed=12), False, SettlementOutcome.GONE),
        (HELD, False, SettlementOutcome.APPLIED),
        (HELD._replace(leased_until=NOON + timedelta(milliseconds=1)), False, SettlementOutcome.APPLIED),
        (HELD._replace(leased_until=NOON), False, SettlementOutcome.LATE_APPLIED),
    ],
)
def test_the_outcome_follows_the_table(
    verb: Verb, standing: QueueLeaseState | None, spent_by_same: bool, outcome: SettlementOutcome
) -> None:
    """All stores must decide as the table in semantics.md, for every verb."""
    assert decide_outcome(verb, LEASE, standing, verb if spent_by_same else None, NOON) is outcome


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("spent_by", Verb)
def test_a_receipt_settled_by_another_verb_is_lost(verb: Verb, spent_by: Verb) -> None:
    """A consumer may rely on `duplicate` only if the same verb was applied."""
    expected = SettlementOutcome.DUPLICATE if verb is spent_by else SettlementOutcome.LOST

    assert decide_outcome(verb, LEASE, HELD, spent_by, NOON) is expected


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
