"""Message mode, long polls, delays and dead letters through the client, against a running gateway."""

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest

from mqgate.client import Client, GatewayError, body_of, every, receipts_of


@pytest.fixture
def workers(client: Client, names: tuple[str, str, str]) -> str:
    """Create a group in message mode on the same topic, with one attempt per message."""
    group = f"workers-{uuid4().hex}"
    client.groups.put(group, {"topic": names[0], "maxAttempts": 1})
    return group


def _bodies(answer):
    return [body_of(message) for message in answer["messages"]]


def _let_die(client, topic, group, *bodies):
    """Publish messages, fail them, and return their ids."""
    results = client.publish_batch(topic, [{"body": body} for body in bodies])
    client.nack_all(group, receipts_of(client.receive(group)), reason="bad day")
    return [result["id"] for result in results]


def test_each_message_is_settled_by_its_own_receipt(client, names, workers):
    """One slow message must not delay the others of its batch."""
    client.publish_batch(names[0], [{"body": "a"}, {"body": "b"}])
    first, second = receipts_of(client.receive(workers))

    acked = client.receive(workers, ack=[second])["acked"]
    extended = client.extend(workers, first, "60s")

    assert (acked, extended["outcome"]) == ([{"outcome": "applied"}], "applied")
    assert client.lag(workers)["leased"] == 1


def test_a_receive_that_waits_returns_what_arrives_meanwhile(client, names, workers, gateway_url):
    """One receive is enough whether the message arrives before or during the wait."""
    received = []

    def wait():
        with Client(gateway_url) as other:
            received.append(other.receive(workers, wait=timedelta(seconds=60)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.publish(names[0], "hello")
    waiting.join(timeout=30)

    assert [_bodies(answer) for answer in received] == [[b"hello"]]


@pytest.mark.parametrize("mode", ["queue", "message"])
def test_a_receive_with_a_lost_response_is_repeated_with_its_attempt_id(client, names, workers, mode):
    """A broken connection must not leave messages leased without a client."""
    group = names[2] if mode == "queue" else workers
    client.publish(names[0], "hello")
    lost = client.receive(group, attempt_id="attempt-1")

    again = client.receive(group, attempt_id="attempt-1")

    assert _bodies(again) == [b"hello"]
    assert receipts_of(again) == receipts_of(lost)
    assert again["messages"][0]["delivery"] == 1


def test_a_scheduled_message_is_found_retimed_and_delivered(client, names, workers):
    """A scheduled message is delivered at its time, not earlier."""
    topic = names[0]
    scheduled = client.publish(topic, "later", delay="10d", key="k", tag="t", properties={"p": "v"})
    before = client.receive(workers)["messages"]

    shown = client.scheduled.get(scheduled["id"])
    retimed = client.scheduled.retime(scheduled["id"], delay=0)
    after = client.receive(workers, wait=timedelta(seconds=30))

    assert before == []
    assert (body_of(shown), shown["state"], shown["deliverAt"]) == (b"later", "scheduled", scheduled["deliverAt"])
    assert retimed["deliverAt"] < scheduled["deliverAt"]
    (message,) = after["messages"]
    assert (message["id"], message["key"], message["tag"]) == (scheduled["id"], "k", "t")


def test_scheduled_messages_are_listed_by_topic_and_time_page_by_page(client, names):
    """Operators need the messages of a time range, not all."""
    topic = names[0]
    start = datetime.now(UTC) + timedelta(days=1)
    ids = [client.publish(topic, "x", deliver_at=start + timedelta(hours=n))["id"] for n in range(4)]

    found = every(
        partial(
            client.scheduled.list,
            topic=topic,
            since=start + timedelta(minutes=30),
            until=start + timedelta(hours=2, minutes=30),
            limit=1,
        )
    )

    assert [item["id"] for item in found] == ids[1:3]


def test_a_cancelled_message_is_not_delivered_and_a_delivered_one_cannot_be_cancelled(client, names, workers):
    """Exactly one of delivery and cancellation happens, and the response states which."""
    topic = names[0]
    cancelled = client.publish(topic, "never", delay="1h")["id"]
    delivered = client.publish(topic, "soon", delay="1h")["id"]
    client.scheduled.retime(delivered, delay=0)
    client.receive(workers, wait=timedelta(seconds=30))

    outcomes = [client.scheduled.cancel(cancelled)["outcome"] for _ in range(2)]
    with pytest.raises(GatewayError) as too_late:
        client.scheduled.cancel(delivered)
    with pytest.raises(GatewayError) as unknown:
        client.scheduled.cancel("nobody")

    assert outcomes == ["cancelled", "cancelled"]
    assert (too_late.value.status, too_late.value.code) == (409, "already_delivered")
    assert unknown.value.status == 404


def test_a_publish_repeated_with_its_idempotency_key_is_stored_once(client, names, workers):
    """After an unknown outcome an application publishes again, in either form."""
    topic = names[0]
    first = client.publish(topic, "once", idempotency_key="order-17")

    again = client.publish(topic, "once", idempotency_key="order-17")
    raw = client.publish_raw(topic, b"once", idempotency_key="order-17")
    with pytest.raises(GatewayError) as other:
        client.publish(topic, "twice", idempotency_key="order-17")

    assert [again, raw] == [first | {"duplicate": True}] * 2
    assert other.value.status == 422
    assert _bodies(client.receive(workers)) == [b"once"]


def test_a_redriven_message_is_delivered_to_its_group_as_a_first_attempt(client, names, workers):
    """After a repair, failed messages are processed again, with one outcome each."""
    ids = _let_die(client, names[0], workers, "a", "b")

    tried = client.dead_letters.redrive(workers, ids, dry_run=True)
    redriven = client.dead_letters.redrive(workers, [ids[0], "nobody"], rate=100)
    rest = client.dead_letters.redrive(workers, is_all=True)

    assert (tried["dryRun"], [result["id"] for result in tried["results"]]) == (True, ids)
    assert [result["outcome"] for result in redriven["results"]] == ["redriven", "not_found"]
    assert rest["results"] == [{"id": ids[1], "outcome": "redriven"}]
    again = client.receive(workers)["messages"]
    assert [(message["id"], message["delivery"]) for message in again] == [(ids[0], 1), (ids[1], 1)]


def test_a_purged_dead_letter_is_deleted(client, names, workers):
    """Messages that will not be repaired must not remain in the list."""
    ids = _let_die(client, names[0], workers, "a", "b", "c")

    client.dead_letters.purge(workers, is_all=True, dry_run=True)
    one = client.dead_letters.purge(workers, ids[:1])
    left = [item["id"] for item in client.dead_letters.list(workers)["items"]]
    rest = client.dead_letters.purge(workers, is_all=True)

    assert one["results"] == [{"id": ids[0], "outcome": "purged"}]
    assert left == ids[1:]
    assert [result["outcome"] for result in rest["results"]] == ["purged", "purged"]
    assert client.dead_letters.list(workers)["items"] == []
