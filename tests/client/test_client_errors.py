"""How the client reports what went wrong."""

import json
import socket
from datetime import timedelta

import pytest

from mqgate.client import Client, GatewayError, GatewayUnreachable


def test_a_problem_document_becomes_one_exception_with_all_it_says(peer):
    """An application decides by code and shows detail; nothing the gateway said may be lost on the way."""
    problem = {
        "status": 400,
        "code": "unknown_field",
        "title": "Unknown member",
        "detail": "leave out colour",
        "retryable": False,
        "field": "colour",
    }
    peer.will_answer(400, json.dumps(problem).encode(), Content_Type="application/problem+json")

    with Client(peer.url) as client, pytest.raises(GatewayError) as caught:
        client.topics.put("orders", {"colour": "red"})

    error = caught.value
    assert (error.status, error.code, error.title) == (400, "unknown_field", "Unknown member")
    assert (error.detail, error.retryable, error.members) == ("leave out colour", False, {"field": "colour"})


def test_a_refused_settlement_tells_its_outcome(peer):
    """Lost and gone ask for different reactions, and the outcome stands only in the problem document."""
    problem = {
        "status": 409,
        "code": "lease_lost",
        "detail": "too late",
        "retryable": False,
        "outcome": "lost",
    }
    peer.will_answer(409, json.dumps(problem).encode(), Content_Type="application/problem+json")

    with Client(peer.url) as client, pytest.raises(GatewayError) as caught:
        client.ack("billing", "r1")

    assert caught.value.members["outcome"] == "lost"


def test_retry_after_reaches_the_caller(peer):
    """A caller that knows when to come back does not hammer a busy gateway."""
    problem = {"status": 503, "code": "overloaded", "detail": "come back", "retryable": True}
    peer.will_answer(503, json.dumps(problem).encode(), Retry_After="7")

    with Client(peer.url) as client, pytest.raises(GatewayError) as caught:
        client.info()

    assert caught.value.retryable
    assert caught.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b'["no", "object"]', b'{"other": "shape"}', b"\xff"]
)
def test_a_refusal_that_no_gateway_wrote_is_still_a_gateway_error(peer, body):
    """A proxy in between answers in its own way, and callers must not need a second kind of except."""
    peer.will_answer(502, body)

    with Client(peer.url) as client, pytest.raises(GatewayError) as caught:
        client.info()

    assert (caught.value.status, caught.value.code) == (502, "unexpected_answer")
    assert caught.value.retryable


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"[1]", b"7"])
def test_a_success_that_is_no_json_object_is_refused(peer, body):
    """A wrong port with a web server behind it must not look like an empty gateway."""
    peer.will_answer(200, body)

    with Client(peer.url) as client, pytest.raises(GatewayError, match="unexpected_answer"):
        client.topics.list()


def test_an_answer_without_a_body_is_an_empty_dict(peer):
    """204 is a success, not a malformed document."""
    peer.will_answer(204)

    with Client(peer.url) as client:
        assert client.topics.delete("orders") == {}


def test_a_closed_port_is_unreachable_and_certainly_nothing_was_done():
    """A caller may repeat a publish without a thought only if the first one never left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    with Client(url) as client, pytest.raises(GatewayUnreachable) as caught:
        client.publish("orders", "hello")

    assert url in caught.value.detail
    assert not caught.value.is_outcome_unknown


def test_a_connection_closed_without_an_answer_leaves_the_outcome_unknown(peer):
    """The message may be stored although nobody said so; hiding that invites duplicates."""
    peer.will_hang_up()

    with Client(peer.url) as client, pytest.raises(GatewayUnreachable) as caught:
        client.publish("orders", "hello")

    assert caught.value.is_outcome_unknown


def test_silence_beyond_the_timeout_is_unreachable():
    """A gateway that accepts and never answers must not hold its caller for ever."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"

        with (
            Client(url, timeout=timedelta(milliseconds=50)) as client,
            pytest.raises(GatewayUnreachable) as caught,
        ):
            client.info()

    assert caught.value.is_outcome_unknown


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://", "http://[::1", "/v1"])
def test_an_address_that_cannot_be_a_gateway_is_refused_at_once(url):
    """A typo in a setting shows when the client is made, not at the first message."""
    with pytest.raises(ValueError, match="not"):
        Client(url)


@pytest.mark.parametrize("key", ["", "secret\n", "gehe\u00efm", "se\x00cret"])
def test_a_key_that_fits_no_header_is_refused_without_being_shown(key):
    """Keys end up in logs when an error quotes them."""
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        Client("http://127.0.0.1:8080", key)

    assert not key or key not in str(caught.value)
