"""The judge of `make chaos` finds what it is there for: each kind of broken promise, planted in a small history."""

from dataclasses import dataclass, field

import pytest
from checker import FAILURES, Findings, check
from history import Event, Fault, Group, Message, Publish, Receive, Sent, Settle, Settled
from recovery import NO_FAULT, times_to_recover

VISIBILITY = 4.0
Q = "broker-a:0"


@dataclass
class Story:
    """A history told in few words; every publish, delivery and ack takes a tenth of a second."""

    mode: str = "message"
    is_ordered: bool = False
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events.append(Group("g", self.mode, VISIBILITY, self.is_ordered))

    def publish(self, body: str, offset: int = 0, *, outcome: str = "stored", key: str | None = None) -> None:
        place = (f"id-{body}", Q, offset) if outcome == "stored" else ()
        self.events.append(Publish(0.0, 0.1, [Sent(body, key, outcome, *place)]))

    def deliver(
        self, *bodies: str, at: float, epoch: int, offset: int = 0, key: str | None = None, incarnation: str = "one"
    ) -> None:
        messages = [Message(Q, offset + number, f"id-{body}", body, key, epoch) for number, body in enumerate(bodies)]
        self.events.append(Receive("g", at, at + 0.1, messages, at + VISIBILITY, incarnation))

    def settle(
        self,
        *,
        at: float,
        epoch: int,
        offset: int = 0,
        count: int = 1,
        outcome: str = "applied",
        verb: str = "ack",
        incarnation: str = "one",
    ) -> None:
        settled = [Settled(Q, offset, offset + count, epoch, incarnation, outcome)]
        self.events.append(Settle("g", verb, at, at + 0.1, settled))

    def fault(self, kind: str, target: str, began: float, ended: float) -> None:
        self.events.append(Fault(kind, target, began, ended))


def failures(story: Story) -> dict[str, int]:
    return dict(check(story.events).failures)


def causes(story: Story) -> dict[str, int]:
    found: Findings = check(story.events)
    assert not any(found.failures[kind] for kind in FAILURES), found.examples
    return dict(found.causes["g"])


@pytest.fixture
def story() -> Story:
    """One message, stored at offset 0, delivered at 1.0 in epoch 1."""
    told = Story()
    told.publish("a")
    told.deliver("a", at=1.0, epoch=1)
    return told


def test_what_was_delivered_and_acked_once_is_good(story: Story) -> None:
    """A judge who always complains is of no use."""
    story.settle(at=1.2, epoch=1)

    found = check(story.events)

    assert not found.failures
    assert (found.published, found.acked["g"], found.delivered["g"]) == (1, 1, 1)


def test_what_was_stored_and_never_acked_is_lost(story: Story) -> None:
    """Also if it was delivered: the group was drained, so somebody else must have taken it off."""
    assert failures(story) == {"lost": 1}


def test_an_ack_without_answer_may_have_been_the_one(story: Story) -> None:
    """The gateway died with the answer; the group has no lag, so it was applied."""
    story.settle(at=1.2, epoch=1, outcome="unknown")

    assert failures(story) == {}


def test_an_ack_that_was_refused_leaves_it_lost(story: Story) -> None:
    """Only what is applied counts."""
    story.settle(at=6.0, epoch=1, outcome="lost")

    assert failures(story) == {"lost": 1}


@pytest.mark.parametrize("outcome", ["refused", "absent"])
def test_what_nobody_published_is_unexpected(outcome: str) -> None:
    """A refusal promises that nothing was stored."""
    story = Story()
    if outcome == "refused":
        story.publish("a", outcome="refused")
    story.deliver("a", at=1.0, epoch=1)
    story.settle(at=1.2, epoch=1)

    assert failures(story) == {"unexpected": 1}


def test_another_body_in_the_place_of_a_stored_one_is_unexpected(story: Story) -> None:
    """An answer says where a message lies."""
    story.publish("b", 1)
    story.settle(at=1.2, epoch=1)
    story.deliver("a", at=2.0, epoch=2, offset=1)
    story.settle(at=2.2, epoch=2, offset=1)

    assert failures(story)["unexpected"] == 1


def test_an_unknown_publish_that_came_is_recovered() -> None:
    """Nobody was told that it is stored: no loss if not, no fault if so."""
    story = Story()
    story.publish("a", outcome="unknown")
    story.publish("b", outcome="unknown")
    story.deliver("a", at=1.0, epoch=1)
    story.settle(at=1.2, epoch=1)

    found = check(story.events)

    assert not found.failures
    assert found.recovered == 1


def test_a_delivery_after_an_applied_ack_is_duplicated(story: Story) -> None:
    """Acked is final, even when the lease would have ended long ago."""
    story.settle(at=1.2, epoch=1)
    story.deliver("a", at=9.0, epoch=2)

    assert failures(story) == {"duplicated": 1}


@pytest.mark.parametrize("kind", ["redis flushed", "redis killed"])
def test_lost_lease_state_explains_a_delivery_after_an_ack(story: Story, kind: str) -> None:
    """Redis is disposable: duplicates, never loss."""
    story.settle(at=1.2, epoch=1)
    story.fault(kind, "redis", 2.0, 2.5)
    story.deliver("a", at=3.0, epoch=1, incarnation="two")
    story.settle(at=3.2, epoch=1, incarnation="two")

    assert causes(story) == {"lease state lost": 1}


def test_a_new_incarnation_without_a_fault_of_redis_is_duplicated(story: Story) -> None:
    """A gateway's death is no reason to forget leases."""
    story.settle(at=1.2, epoch=1)
    story.fault("gateway killed", "0", 2.0, 2.5)
    story.deliver("a", at=3.0, epoch=1, incarnation="two")

    assert failures(story) == {"duplicated": 1}


def test_a_lease_that_ended_explains_the_next_delivery(story: Story) -> None:
    """At least once: who does not answer in time is not alone with it any more."""
    story.deliver("a", at=1.0 + VISIBILITY, epoch=2)
    story.settle(at=5.2, epoch=2)

    assert causes(story) == {"lease ended": 1}


def test_a_nack_explains_the_next_delivery(story: Story) -> None:
    """Given back is ready at once."""
    story.settle(at=1.2, epoch=1, verb="nack")
    story.deliver("a", at=1.5, epoch=2)
    story.settle(at=1.7, epoch=2)

    assert causes(story) == {"given back": 1}


def test_a_broker_that_came_back_explains_a_rewind(story: Story) -> None:
    """Whoever starts again may have lost its last messages, so its queues go back."""
    story.settle(at=1.2, epoch=1)
    story.fault("broker killed", "broker-a", 2.0, 7.0)
    story.deliver("a", at=8.0, epoch=3)
    story.settle(at=8.2, epoch=3)

    assert causes(story) == {"broker restarted": 1}


def test_another_broker_that_came_back_explains_nothing(story: Story) -> None:
    """Only its own queues go back."""
    story.settle(at=1.2, epoch=1)
    story.fault("broker killed", "broker-b", 2.0, 7.0)
    story.deliver("a", at=8.0, epoch=3)

    assert failures(story) == {"duplicated": 1}


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_second_lease_before_the_first_ended_overlaps(story: Story, epoch: int) -> None:
    """Also the same lease in two answers: nobody asked for a repeat."""
    story.deliver("a", at=4.9, epoch=epoch)
    story.settle(at=5.5, epoch=epoch)

    assert failures(story) == {"overlap": 1}


def test_a_copy_needs_an_unknown_publish() -> None:
    """With an idempotency key two copies are possible only after an unknown outcome, and both have one id."""
    told = {}
    for outcome in ("unknown", "stored"):
        story = Story()
        story.publish("a", 0, outcome=outcome)
        story.publish("a", 1)
        story.deliver("a", "a", at=1.0, epoch=1)
        story.settle(at=1.2, epoch=1, count=2)
        told[outcome] = failures(story)

    assert told == {"unknown": {}, "stored": {"duplicated": 1}}


def test_a_receipt_that_is_applied_twice_is_told() -> None:
    """Any number of repeats of an ack equals one: the second is a duplicate."""
    told = {}
    for second in ("duplicate", "applied"):
        story = Story()
        story.publish("a")
        story.deliver("a", at=1.0, epoch=1)
        story.settle(at=1.2, epoch=1)
        story.settle(at=1.4, epoch=1, outcome=second)
        told[second] = failures(story)

    assert told == {"duplicate": {}, "applied": {"refused": 1}}


@pytest.mark.parametrize("outcome", ["lost", "gone", "invalid"])
def test_an_ack_in_time_must_not_be_refused(story: Story, outcome: str) -> None:
    """A lease is a right until its end, on every gateway."""
    story.settle(at=1.2, epoch=1, outcome=outcome)
    story.deliver("a", at=6.0, epoch=2)
    story.settle(at=6.2, epoch=2)

    assert failures(story) == {"refused": 1}


def test_lost_lease_state_excuses_a_refusal(story: Story) -> None:
    """Receipts of before are gone."""
    story.fault("redis flushed", "redis", 1.1, 1.1)
    story.settle(at=1.2, epoch=1, outcome="gone")
    story.deliver("a", at=2.0, epoch=1, incarnation="two")
    story.settle(at=2.2, epoch=1, incarnation="two")

    assert causes(story) == {"lease state lost": 1}


def test_queue_mode_first_deliveries_increase() -> None:
    """Total order per queue: what is new never lies before what was given earlier."""
    story = Story(mode="queue")
    story.publish("a", 0)
    story.publish("b", 1)
    story.deliver("b", at=1.0, epoch=1, offset=1)
    story.settle(at=1.2, epoch=1, offset=1)
    story.deliver("a", at=2.0, epoch=2, offset=0)
    story.settle(at=2.2, epoch=2, offset=0)

    assert failures(story) == {"order": 1}


def keyed(*, settled_at: float, incarnation: str = "one") -> Story:
    """Two messages of one key; the second one is in a client's hands at 2.1."""
    story = Story(is_ordered=True)
    story.publish("a", 0, key="k")
    story.publish("b", 1, key="k")
    story.deliver("a", at=1.0, epoch=1, key="k")
    story.settle(at=settled_at, epoch=1)
    story.deliver("b", at=2.0, epoch=2, offset=1, key="k", incarnation=incarnation)
    story.settle(at=4.5, epoch=2, offset=1, incarnation=incarnation)
    return story


def test_an_ordered_group_waits_for_the_earlier_message_of_a_key() -> None:
    """The next of a key only after all earlier ones are acked or dead."""
    assert failures(keyed(settled_at=1.5)) == {}
    assert failures(keyed(settled_at=3.0)) == {"order": 1}


def test_an_ordered_group_keeps_order_after_a_loss_of_lease_state_too() -> None:
    """What is given again under a new incarnation is given again in order."""
    story = keyed(settled_at=1.5, incarnation="two")
    story.fault("redis flushed", "redis", 1.7, 1.7)
    assert failures(story) == {}, "it was acked before, and not given again"

    story.deliver("a", at=3.0, epoch=3, key="k", incarnation="two")
    story.settle(at=3.2, epoch=3, incarnation="two")

    assert failures(story) == {"order": 1}


def test_service_is_back_when_the_last_one_was_served() -> None:
    """Requests that began before a fault say nothing, nor do empty answers."""
    story = Story()
    story.fault("gateway killed", "0", 0.95, 0.95)
    story.deliver("a", at=0.9, epoch=1)
    story.deliver(at=1.0, epoch=1)
    story.deliver("a", at=2.0, epoch=2)
    story.events.append(Publish(1.2, 1.3, [Sent("b", None, "unknown")]))
    story.events.append(Publish(1.4, 1.5, [Sent("b", None, "stored", "id-b", Q, 1)]))

    found = times_to_recover(story.events)

    assert {kind: [round(each, 2) for each in times] for kind, times in found.items()} == {"gateway killed": [1.15]}
    assert NO_FAULT not in found
