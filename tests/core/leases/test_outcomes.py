"""The outcome of every verb, by what the lease state shows of the lease."""

from typing import Any

import pytest

from mqgate.core.lease import Lease, SettlementOutcome, Verb
from mqgate.core.leases.outcomes import LIFE, OUTCOMES, LeaseStatus, MessageEvent, MessageState, outcome_of
from mqgate.core.leases.queue_settle import status_of
from mqgate.core.leases.queue_state import QueueLease, QueueScope
from mqgate.core.tokens import GroupTokens

NOW, UNTIL = 1_000, 31_000
LEASE = Lease("workers", "", "local:0", 10, 14, 5, "inc")
HELD: dict[str, Any] = {
    "head_min": 7,
    "head_max": 100,
    "committed": 10,
    "epoch": 5,
    "batch_next": 14,
    "leased_until": UNTIL,
    "held": 1,
}


def holding(**changes: Any) -> QueueScope:
    """Return a scope whose queue is leased under epoch 5, with these changes."""
    scope = QueueScope("workers", "", "inc", GroupTokens())
    scope.add(QueueLease("local:0", **HELD | changes))
    return scope


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"epoch": 9, "revoked_epoch": 8}, SettlementOutcome.GONE),
        ({"revoked_epoch": 5}, SettlementOutcome.GONE),
        ({"epoch": 6}, SettlementOutcome.LOST),
        ({"epoch": 6, "head_min": 11}, SettlementOutcome.GONE),
        ({"committed": 12}, SettlementOutcome.GONE),
        ({}, SettlementOutcome.APPLIED),
        ({"leased_until": NOW + 1}, SettlementOutcome.APPLIED),
        ({"leased_until": NOW}, SettlementOutcome.LATE_APPLIED),
    ],
)
def test_the_outcome_follows_the_table(verb: Verb, changes: dict[str, Any], outcome: SettlementOutcome) -> None:
    """All stores must decide as the table in semantics.md, for every verb."""
    assert outcome_of(status_of(holding(**changes), LEASE, NOW), verb) is outcome


@pytest.mark.parametrize("verb", Verb)
def test_a_receipt_of_other_state_is_gone(verb: Verb) -> None:
    """Neither another incarnation nor an unknown queue can be checked, whatever else they contain."""
    scope = holding()
    scope.spent["local:0", 5] = verb

    of_another = status_of(scope, LEASE._replace(incarnation="other"), NOW)
    of_unknown = status_of(scope, LEASE._replace(queue="local:9"), NOW)

    assert {outcome_of(status, verb) for status in (of_another, of_unknown)} == {SettlementOutcome.GONE}


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("spent_by", [Verb.ACK, Verb.NACK])
@pytest.mark.parametrize("epoch", [5, 6], ids=["current", "superseded"])
def test_a_receipt_settled_by_another_verb_is_lost(verb: Verb, spent_by: Verb, epoch: int) -> None:
    """A consumer may rely on `duplicate` only if the same verb was applied."""
    scope = holding(epoch=epoch)
    scope.spent["local:0", 5] = spent_by
    expected = SettlementOutcome.DUPLICATE if verb is spent_by else SettlementOutcome.LOST

    assert outcome_of(status_of(scope, LEASE, NOW), verb) is expected


def test_every_status_has_an_outcome_for_every_verb() -> None:
    """A settlement always gets one of the outcomes of S1."""
    assert set(OUTCOMES) == {(status, verb) for status in LeaseStatus for verb in Verb}


def test_every_state_but_the_last_has_an_end() -> None:
    """Invariant 1: a message is in exactly one state, and every state but `settled` can be left."""
    assert {state for state, _ in LIFE} == set(MessageState) - {MessageState.SETTLED}
    assert {event for _, event in LIFE} == set(MessageEvent)
