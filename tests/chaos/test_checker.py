"""The checker of `make chaos` detects each kind of violation in a small history."""

from dataclasses import dataclass, field

import pytest
from checker import FAILURES, Findings, check
from history import Event, Fault, Group, Message, Publish, Receive, Sent, Settle, Settled
from recovery import NO_FAULT, times_to_recover

VISIBILITY = 4.0
Q = "broker-a:0"


@dataclass
class Story:
    """Builder of a history in which every publish, delivery and ack takes 0.1 s."""

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
    story = Story()
    story.publish("a")
    story.deliver("a", at=1.0, epoch=1)
    return story


def test_one_delivery_and_one_ack_is_no_finding(story: Story) -> None:
    """The checker must not report false findings."""
    story.settle(at=1.2, epoch=1)

    found = check(story.events)

    assert not found.failures
    assert (found.published, found.acked["g"], found.delivered["g"]) == (1, 1, 1)


def test_a_stored_message_without_an_ack_is_lost(story: Story) -> None:
    """The group was drained, so an unacknowledged message disappeared, even if it was delivered."""
    assert failures(story) == {"lost": 1}


def test_an_ack_without_a_response_may_have_been_applied(story: Story) -> None:
    """The gateway was killed before it responded; the lag is 0, so the ack was applied."""
    story.settle(at=1.2, epoch=1, outcome="unknown")

    assert failures(story) == {}


def test_a_refused_ack_leaves_the_message_lost(story: Story) -> None:
    """Only an applied ack settles a message."""
    story.settle(at=6.0, epoch=1, outcome="lost")

    assert failures(story) == {"lost": 1}


@pytest.mark.parametrize("outcome", ["refused", "absent"])
def test_a_delivery_without_a_publish_is_unexpected(outcome: str) -> None:
    """A refused publish must not store a message."""
    story = Story()
    if outcome == "refused":
        story.publish("a", outcome="refused")
    story.deliver("a", at=1.0, epoch=1)
    story.settle(at=1.2, epoch=1)

    assert failures(story) == {"unexpected": 1}


def test_another_body_at_the_position_of_a_stored_one_is_unexpected(story: Story) -> None:
    """A response states the position of a message."""
    story.publish("b", 1)
    story.settle(at=1.2, epoch=1)
    story.deliver("a", at=2.0, epoch=2, offset=1)
    story.settle(at=2.2, epoch=2, offset=1)

    assert failures(story)["unexpected"] == 1


def test_a_delivered_message_of_an_unknown_publish_is_recovered() -> None:
    """The outcome was unknown to the client, so both results are allowed."""
    story = Story()
    story.publish("a", outcome="unknown")
    story.publish("b", outcome="unknown")
    story.deliver("a", at=1.0, epoch=1)
    story.settle(at=1.2, epoch=1)

    found = check(story.events)

    assert not found.failures
    assert found.recovered == 1


def test_a_delivery_after_an_applied_ack_is_duplicated(story: Story) -> None:
    """An ack is final, even after the expiry of the lease."""
    story.settle(at=1.2, epoch=1)
    story.deliver("a", at=9.0, epoch=2)

    assert failures(story) == {"duplicated": 1}


@pytest.mark.parametrize("kind", ["redis flushed", "redis killed"])
def test_lost_lease_state_explains_a_delivery_after_an_ack(story: Story, kind: str) -> None:
    """A loss of Redis may cause duplicates, but no loss of messages."""
    story.settle(at=1.2, epoch=1)
    story.fault(kind, "redis", 2.0, 2.5)
    story.deliver("a", at=3.0, epoch=1, incarnation="two")
    story.settle(at=3.2, epoch=1, incarnation="two")

    assert causes(story) == {"lease state lost": 1}


def test_a_new_incarnation_without_a_fault_of_redis_is_duplicated(story: Story) -> None:
    """The loss of a gateway must not delete leases."""
    story.settle(at=1.2, epoch=1)
    story.fault("gateway killed", "0", 2.0, 2.5)
    story.deliver("a", at=3.0, epoch=1, incarnation="two")

    assert failures(story) == {"duplicated": 1}


def test_an_expired_lease_explains_the_next_delivery(story: Story) -> None:
    """After its lease has expired, a message may be delivered to another client."""
    story.deliver("a", at=1.0 + VISIBILITY, epoch=2)
    story.settle(at=5.2, epoch=2)

    assert causes(story) == {"lease ended": 1}


def test_a_nack_explains_the_next_delivery(story: Story) -> None:
    """A released message is ready at once."""
    story.settle(at=1.2, epoch=1, verb="nack")
    story.deliver("a", at=1.5, epoch=2)
    story.settle(at=1.7, epoch=2)

    assert causes(story) == {"given back": 1}


def test_a_restarted_broker_explains_a_rewind(story: Story) -> None:
    """A restarted broker may have lost its last messages, so groups are rewound."""
    story.settle(at=1.2, epoch=1)
    story.fault("broker killed", "broker-a", 2.0, 7.0)
    story.deliver("a", at=8.0, epoch=3)
    story.settle(at=8.2, epoch=3)

    assert causes(story) == {"broker restarted": 1}


def test_another_restarted_broker_does_not_explain_a_rewind(story: Story) -> None:
    """Only the queues of the restarted broker are rewound."""
    story.settle(at=1.2, epoch=1)
    story.fault("broker killed", "broker-b", 2.0, 7.0)
    story.deliver("a", at=8.0, epoch=3)

    assert failures(story) == {"duplicated": 1}


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_second_lease_before_the_end_of_the_first_overlaps(story: Story, epoch: int) -> None:
    """The same lease in two responses is a violation too, without a repeated attempt id."""
    story.deliver("a", at=4.9, epoch=epoch)
    story.settle(at=5.5, epoch=epoch)

    assert failures(story) == {"overlap": 1}


def test_a_copy_requires_an_unknown_publish() -> None:
    """With an idempotency key two copies are possible only after an unknown outcome, and both have one id."""
    found = {}
    for outcome in ("unknown", "stored"):
        story = Story()
        story.publish("a", 0, outcome=outcome)
        story.publish("a", 1)
        story.deliver("a", "a", at=1.0, epoch=1)
        story.settle(at=1.2, epoch=1, count=2)
        found[outcome] = failures(story)

    assert found == {"unknown": {}, "stored": {"duplicated": 1}}


def test_a_receipt_that_is_applied_twice_is_reported() -> None:
    """A repeated ack must be reported as a duplicate."""
    found = {}
    for second in ("duplicate", "applied"):
        story = Story()
        story.publish("a")
        story.deliver("a", at=1.0, epoch=1)
        story.settle(at=1.2, epoch=1)
        story.settle(at=1.4, epoch=1, outcome=second)
        found[second] = failures(story)

    assert found == {"duplicate": {}, "applied": {"refused": 1}}


@pytest.mark.parametrize("outcome", ["lost", "gone", "invalid"])
def test_an_ack_in_time_must_not_be_refused(story: Story, outcome: str) -> None:
    """A lease is valid until its expiry, on every gateway."""
    story.settle(at=1.2, epoch=1, outcome=outcome)
    story.deliver("a", at=6.0, epoch=2)
    story.settle(at=6.2, epoch=2)

    assert failures(story) == {"refused": 1}


def test_lost_lease_state_excuses_a_refusal(story: Story) -> None:
    """Receipts of an earlier incarnation are invalid."""
    story.fault("redis flushed", "redis", 1.1, 1.1)
    story.settle(at=1.2, epoch=1, outcome="gone")
    story.deliver("a", at=2.0, epoch=1, incarnation="two")
    story.settle(at=2.2, epoch=1, incarnation="two")

    assert causes(story) == {"lease state lost": 1}


def test_queue_mode_first_deliveries_increase() -> None:
    """Queue mode guarantees total order: a first delivery never precedes an earlier one."""
    story = Story(mode="queue")
    story.publish("a", 0)
    story.publish("b", 1)
    story.deliver("b", at=1.0, epoch=1, offset=1)
    story.settle(at=1.2, epoch=1, offset=1)
    story.deliver("a", at=2.0, epoch=2, offset=0)
    story.settle(at=2.2, epoch=2, offset=0)

    assert failures(story) == {"order": 1}


def keyed(*, settled_at: float, incarnation: str = "one") -> Story:
    """Return two messages of one key; the client receives the second one at 2.1."""
    story = Story(is_ordered=True)
    story.publish("a", 0, key="k")
    story.publish("b", 1, key="k")
    story.deliver("a", at=1.0, epoch=1, key="k")
    story.settle(at=settled_at, epoch=1)
    story.deliver("b", at=2.0, epoch=2, offset=1, key="k", incarnation=incarnation)
    story.settle(at=4.5, epoch=2, offset=1, incarnation=incarnation)
    return story


def test_an_ordered_group_waits_for_the_earlier_message_of_a_key() -> None:
    """A message is delivered only after all earlier ones of its key are acked or dead-lettered."""
    assert failures(keyed(settled_at=1.5)) == {}
    assert failures(keyed(settled_at=3.0)) == {"order": 1}


def test_an_ordered_group_keeps_order_after_a_loss_of_lease_state_too() -> None:
    """Redeliveries of a new incarnation keep the order too."""
    story = keyed(settled_at=1.5, incarnation="two")
    story.fault("redis flushed", "redis", 1.7, 1.7)
    assert failures(story) == {}, "it was acked before, and not given again"

    story.deliver("a", at=3.0, epoch=3, key="k", incarnation="two")
    story.settle(at=3.2, epoch=3, incarnation="two")

    assert failures(story) == {"order": 1}


def test_recovery_ends_when_the_last_client_was_served() -> None:
    """Requests that started before the fault, and empty responses, do not show a recovery."""
    story = Story()
    story.fault("gateway killed", "0", 0.95, 0.95)
    story.deliver("a", at=0.9, epoch=1)
    story.deliver(at=1.0, epoch=1)
    story.deliver("a", at=2.0, epoch=2)
    story.events.append(Publish(1.2, 1.3, [Sent("b", None, "unknown")]))
    story.events.append(Publish(1.4, 1.5, [Sent("b", None, "stored", "id-b", Q, 1)]))

    found = times_to_recover(story.events)

    assert {kind: [round(time, 2) for time in times] for kind, times in found.items()} == {"gateway killed": [1.15]}
    assert NO_FAULT not in found
