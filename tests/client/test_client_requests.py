"""Requests of the client that a gateway could misread."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from mqgate.client import Client, GatewayError, body_of, envelope, receipts_of


@pytest.mark.parametrize(
    ("name", "segment"),
    [("..", "%2E%2E"), (".", "%2E"), ("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("\u4e2d", "%E4%B8%AD")],
)
def test_a_name_with_special_characters_addresses_only_itself(peer, name, segment):
    """Deleting a topic called `..` must not send a DELETE to the parent."""
    peer.will_answer(204)

    with Client(peer.url, retry_for=0) as client:
        client.topics.delete(name)

    assert peer.requests[0][:2] == ("DELETE", f"/v1/topics/{segment}")


def test_an_empty_name_is_refused_before_it_is_sent(peer):
    """An empty name would address the whole list."""
    with Client(peer.url, retry_for=0) as client, pytest.raises(ValueError, match="empty"):
        client.groups.get("")

    assert peer.requests == []


def test_the_key_is_sent_as_a_bearer_token_on_every_call(peer):
    """A gateway with keys refuses calls without one."""
    peer.will_answer(200, b"{}")

    with Client(peer.url, "mk_1", retry_for=0) as client:
        client.info()

    assert peer.requests[0][2]["Authorization"] == "Bearer mk_1"


def test_a_raw_publish_refuses_the_one_content_type_that_is_not_raw(peer):
    """A body of type application/json would be parsed as an envelope instead of stored."""
    with Client(peer.url, retry_for=0) as client, pytest.raises(ValueError, match="envelope"):
        client.publish_raw("orders", b"{}", content_type="Application/JSON; charset=utf-8")

    assert peer.requests == []


def test_a_raw_publish_sends_its_metadata_in_headers(peer):
    """A raw body supports delays and idempotency keys too."""
    peer.will_answer(202, b"{}")
    peer.will_answer(202, b"{}")

    with Client(peer.url, retry_for=0) as client:
        client.publish_raw("orders", b"x", delay=timedelta(minutes=2), idempotency_key="order-17")
        client.publish_raw("orders", b"x", deliver_at=datetime(2030, 1, 31, 12, tzinfo=UTC))

    first, second = (headers for _, _, headers, _ in peer.requests)
    assert (float(first["Mqgate-Delay"]), first["Idempotency-Key"]) == (120, "order-17")
    assert second["Mqgate-Deliver-At"] == "2030-01-31T12:00:00+00:00"
    assert "Mqgate-Delay" not in second


def test_a_string_instead_of_a_list_of_ids_is_refused(peer):
    """A string is a sequence: purging "abc" must not purge the dead letters a, b and c."""
    with Client(peer.url, retry_for=0) as client, pytest.raises(TypeError, match="sequence of ids"):
        client.dead_letters.purge("billing", "01a1e2466d55b0ac2679239be0e0b4a3")

    assert peer.requests == []


def test_an_empty_selection_does_not_mean_all(peer):
    """An empty selection must not delete everything; the gateway refuses it."""
    peer.will_answer(400, b'{"code": "invalid_value"}')

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError):
        client.dead_letters.purge("billing", [])

    assert json.loads(peer.requests[0][3]) == {}


def test_omitted_settings_are_not_sent_as_null(peer):
    """Null removes a setting, so an omitted argument must not be sent as null."""
    peer.will_answer(200, b"{}")

    with Client(peer.url, retry_for=0) as client:
        client.receive("billing", max=5)

    assert json.loads(peer.requests[0][3]) == {"max": 5}


@pytest.mark.parametrize("body", [b"hello", "h\u00e9llo \u4e2d".encode(), b"\xff\x00\xfe", b"line\nline\r\n", b"\x00"])
def test_an_envelope_preserves_the_bytes_of_a_body(body):
    """The encoding of a body in JSON must not change its bytes."""
    assert body_of(envelope(body)) == body


def test_an_envelope_contains_only_the_given_members():
    """A gateway refuses empty keys, so omitted members must not be sent."""
    assert envelope("hello", properties={}) == {"body": "hello"}
    assert envelope({"a": 1}, key="k", idempotency_key="i") == {
        "body": {"a": 1},
        "key": "k",
        "idempotencyKey": "i",
    }


def test_a_lease_on_a_queue_is_acknowledged_by_its_one_receipt():
    """In queue mode messages have no receipts of their own."""
    answer = {"messages": [{"id": "a"}, {"id": "b"}], "lease": {"receipt": "r"}}

    assert receipts_of(answer) == ["r"]


def test_single_messages_are_acknowledged_one_by_one():
    """In message mode there is no lease on the batch."""
    answer = {"messages": [{"receipt": "r1"}, {"receipt": "r2"}]}

    assert receipts_of(answer) == ["r1", "r2"]
