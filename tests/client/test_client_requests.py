"""What the client puts on the wire where a gateway could misread it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from mqgate.client import Client, GatewayError, body_of, envelope, receipts_of


@pytest.mark.parametrize(
    ("name", "segment"),
    [("..", "%2E%2E"), (".", "%2E"), ("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("\u4e2d", "%E4%B8%AD")],
)
def test_a_strange_name_addresses_nothing_else(peer, name, segment):
    """Deleting a topic called `..` must not send a DELETE to the parent."""
    peer.will_answer(204)

    with Client(peer.url) as client:
        client.topics.delete(name)

    assert peer.requests[0][:2] == ("DELETE", f"/v1/topics/{segment}")


def test_an_empty_name_is_refused_before_it_is_sent(peer):
    """An empty name would turn one entry's address into that of the whole list."""
    with Client(peer.url) as client, pytest.raises(ValueError, match="empty"):
        client.groups.get("")

    assert peer.requests == []


def test_the_key_travels_as_a_bearer_token_on_every_call(peer):
    """A gateway with keys refuses whatever comes without one."""
    peer.will_answer(200, b"{}")

    with Client(peer.url, "mk_1") as client:
        client.info()

    assert peer.requests[0][2]["Authorization"] == "Bearer mk_1"


def test_a_raw_publish_refuses_the_one_content_type_that_is_not_raw(peer):
    """Sent as application/json the bytes would be parsed as an envelope instead of stored."""
    with Client(peer.url) as client, pytest.raises(ValueError, match="envelope"):
        client.publish_raw("orders", b"{}", content_type="Application/JSON; charset=utf-8")

    assert peer.requests == []


def test_a_raw_publish_says_in_headers_what_an_envelope_says_in_members(peer):
    """Bytes that are no JSON can be delayed and repeated safely as well."""
    peer.will_answer(202, b"{}")
    peer.will_answer(202, b"{}")

    with Client(peer.url) as client:
        client.publish_raw("orders", b"x", delay=timedelta(minutes=2), idempotency_key="order-17")
        client.publish_raw("orders", b"x", deliver_at=datetime(2030, 1, 31, 12, tzinfo=UTC))

    first, second = (headers for _, _, headers, _ in peer.requests)
    assert (float(first["Mqgate-Delay"]), first["Idempotency-Key"]) == (120, "order-17")
    assert second["Mqgate-Deliver-At"] == "2030-01-31T12:00:00+00:00"
    assert "Mqgate-Delay" not in second


def test_one_id_in_the_place_of_many_is_refused_before_it_is_sent(peer):
    """A text is a sequence too: purging "abc" must not mean the dead letters a, b and c."""
    with Client(peer.url) as client, pytest.raises(TypeError, match="list of ids"):
        client.dead_letters.purge("billing", "01a1e2466d55b0ac2679239be0e0b4a3")

    assert peer.requests == []


def test_nothing_named_is_not_taken_for_all(peer):
    """An empty selection must not throw everything away; the gateway refuses a body that chooses nothing."""
    peer.will_answer(400, b'{"code": "invalid_value"}')

    with Client(peer.url) as client, pytest.raises(GatewayError):
        client.dead_letters.purge("billing", [])

    assert json.loads(peer.requests[0][3]) == {}


def test_settings_left_out_are_not_sent_as_null(peer):
    """Null means: lift this setting. Leaving an argument out must not say so."""
    peer.will_answer(200, b"{}")

    with Client(peer.url) as client:
        client.receive("billing", most=5)

    assert json.loads(peer.requests[0][3]) == {"max": 5}


@pytest.mark.parametrize("body", [b"hello", "h\u00e9llo \u4e2d".encode(), b"\xff\x00\xfe", b"line\nline\r\n", b"\x00"])
def test_bytes_come_back_from_an_envelope_as_they_went_in(body):
    """Text or not is a matter of transport; a message is its bytes."""
    assert body_of(envelope(body)) == body


def test_an_envelope_names_only_what_was_given():
    """Empty keys and properties are refused by a gateway, so absence must stay absence."""
    assert envelope("hello", properties={}) == {"body": "hello"}
    assert envelope({"a": 1}, key="k", idempotency_key="i") == {
        "body": {"a": 1},
        "key": "k",
        "idempotencyKey": "i",
    }


def test_a_lease_on_a_queue_is_acknowledged_by_its_one_receipt():
    """In queue mode messages carry none of their own."""
    answer = {"messages": [{"id": "a"}, {"id": "b"}], "lease": {"receipt": "r"}}

    assert receipts_of(answer) == ["r"]


def test_messages_leased_singly_are_acknowledged_one_by_one():
    """In message mode there is no lease on the whole."""
    answer = {"messages": [{"receipt": "r1"}, {"receipt": "r2"}]}

    assert receipts_of(answer) == ["r1", "r2"]
