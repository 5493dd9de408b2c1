"""The client against a running gateway."""

from functools import partial
from uuid import uuid4

import pytest

from mqgate.client import GatewayError, body_of, every, receipts_of


def test_every_form_of_publish_delivers_the_same_bytes(client, names):
    """Single, batch and raw publishes store messages in the same way."""
    topic, producer, group = names
    client.publish(topic, "text \u4e2d", producer=producer, key="k", tag="t", properties={"Colour": "red"})
    results = client.publish_batch(topic, [{"body": {"a": 1}}, {"bodyBase64": "//4="}], producer=producer)
    client.publish_raw(topic, b"raw\x00", producer=producer, key="k2", properties={"Colour": "blue"})

    answer = client.receive(group)

    assert [result["status"] for result in results] == [201, 201]
    assert [body_of(message) for message in answer["messages"]] == [
        "text \u4e2d".encode(),
        b'{"a":1}',
        b"\xff\xfe",
        b"raw\x00",
    ]
    first, *_, last = answer["messages"]
    assert (first["key"], first["tag"], first["properties"]["Colour"]) == ("k", "t", "red")
    assert (last["key"], last["properties"]["colour"]) == ("k2", "blue")


def test_an_ack_carried_by_the_next_receive_is_applied(client, names):
    """A consumer needs one round trip per batch, not two."""
    topic, producer, group = names
    client.publish(topic, "hello", producer=producer)
    first = client.receive(group)

    second = client.receive(group, ack=receipts_of(first))

    assert second["acked"] == [{"outcome": "applied"}]
    assert second["messages"] == []
    assert client.lag(group)["lag"] == 0


def test_a_batch_is_settled_by_each_verb(client, names):
    """The client supports every settlement: extend, nack, and ack of a prefix and of the rest."""
    topic, producer, group = names
    client.publish_batch(topic, [{"body": str(number)} for number in range(3)], producer=producer)
    lease = client.receive(group)["lease"]

    extended = client.extend(group, lease["receipt"], "60s")
    released = client.nack(group, lease["receipt"], delay=0, reason="not now")
    again = client.receive(group)
    part = client.ack(group, again["lease"]["receipt"], through=again["messages"][0]["offset"])
    rest = client.receive(group)
    settled = client.ack_all(group, receipts_of(rest))

    assert [extended["outcome"], released["outcome"], part["outcome"]] == ["applied"] * 3
    assert [body_of(message) for message in rest["messages"]] == [b"1", b"2"]
    assert [result["outcome"] for result in settled] == ["applied"]


def test_a_forged_receipt_is_refused_alone_and_reported_among_others(client, names):
    """One invalid receipt of many is an outcome in the list; a single one is an exception."""
    _, _, group = names

    with pytest.raises(GatewayError) as caught:
        client.ack(group, "forged")
    results = client.ack_all(group, ["forged"])

    assert (caught.value.status, caught.value.members["outcome"]) == (400, "invalid")
    assert [result["outcome"] for result in results] == ["invalid"]


def test_a_group_is_patched_paused_and_resumed(client, names):
    """A patch must not change other settings, and a pause must show in the next receive."""
    topic, producer, group = names
    client.publish(topic, "hello", producer=producer)
    client.groups.patch(group, {"maxAttempts": 5})

    client.pause(group, reason="maintenance")
    paused = client.receive(group)
    client.resume(group)
    resumed = client.receive(group)

    assert client.groups.get(group)["maxAttempts"] == 5
    assert client.groups.get(group)["mode"] == "queue"
    assert (paused["state"], paused["messages"]) == ("paused", [])
    assert len(resumed["messages"]) == 1


def test_a_dry_run_of_a_seek_changes_nothing(client, names):
    """Operators check a seek before they execute it."""
    topic, producer, group = names
    client.publish(topic, "hello", producer=producer)

    client.seek(group, "latest", dry_run=True)
    before = client.lag(group)["lag"]
    client.seek(group, "latest", reason="skip")

    assert (before, client.lag(group)["lag"]) == (1, 0)


def test_an_exhausted_message_is_listed_as_a_dead_letter(client, names):
    """Operators inspect dead letters with their body."""
    topic, producer, group = names
    client.groups.patch(group, {"maxAttempts": 1})
    stored = client.publish(topic, "poison", producer=producer)
    client.nack(group, client.receive(group)["lease"]["receipt"], delay=0, reason="bad day")

    items = list(every(partial(client.dead_letters.list, group)))
    letter = client.dead_letters.get(group, stored["id"])

    assert [(item["id"], item["reason"]) for item in items] == [(stored["id"], "bad day")]
    assert body_of(letter) == b"poison"


def test_lists_are_read_to_their_end_page_by_page(client):
    """A list that ends after the first page would hide entries."""
    topics = {f"page-{number}-{uuid4().hex}" for number in range(3)}
    for topic in topics:
        client.topics.put(topic, {})

    listed = {item["name"] for item in every(partial(client.topics.list, limit=1))}

    assert topics <= listed


def test_every_change_of_the_registry_is_in_the_audit_log(client):
    """Changes must be traceable later."""
    topic = f"topic-{uuid4().hex}"

    client.topics.put(topic, {"queues": 1})

    newest = client.audit(limit=5)["items"]
    assert any(topic in item["subject"] for item in newest)
    assert set(newest[0]) == {"at", "actor", "action", "subject", "reason", "details"}


def test_clients_that_polled_are_listed_by_their_name(client, names):
    """An operator needs the clients of a group before a restart."""
    _, _, group = names
    client.receive(group, client_id="worker-1")

    listed = client.clients(group)["items"]

    assert any("worker-1" in item.values() for item in listed)
