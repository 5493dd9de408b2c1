"""The errors of the client."""

import json
import socket
from datetime import timedelta

import pytest

from mqgate.client import Client, GatewayError, GatewayUnreachable


def test_a_problem_document_becomes_one_exception_with_all_members(peer):
    """Applications use the code and show the detail; no member may be lost."""
    problem = {
        "status": 400,
        "code": "unknown_field",
        "title": "Unknown member",
        "detail": "leave out colour",
        "retryable": False,
        "field": "colour",
    }
    peer.will_answer(400, json.dumps(problem).encode(), Content_Type="application/problem+json")

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError) as caught:
        client.topics.put("orders", {"colour": "red"})

    error = caught.value
    assert (error.status, error.code, error.title) == (400, "unknown_field", "Unknown member")
    assert (error.detail, error.retryable, error.members) == ("leave out colour", False, {"field": "colour"})


def test_a_refused_settlement_has_its_outcome(peer):
    """The outcomes lost and gone require different reactions."""
    problem = {
        "status": 409,
        "code": "lease_lost",
        "detail": "too late",
        "retryable": False,
        "outcome": "lost",
    }
    peer.will_answer(409, json.dumps(problem).encode(), Content_Type="application/problem+json")

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError) as caught:
        client.ack("billing", "r1")

    assert caught.value.members["outcome"] == "lost"


def test_retry_after_reaches_the_caller(peer):
    """Callers that wait do not overload a busy gateway."""
    problem = {"status": 503, "code": "overloaded", "detail": "come back", "retryable": True}
    peer.will_answer(503, json.dumps(problem).encode(), Retry_After="7")

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError) as caught:
        client.info()

    assert caught.value.retryable
    assert caught.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b'["no", "object"]', b'{"other": "shape"}', b"\xff"]
)
def test_a_refusal_of_a_proxy_is_a_gateway_error(peer, body):
    """A proxy has its own error format, and callers must not need a second exception type."""
    peer.will_answer(502, body)

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError) as caught:
        client.info()

    assert (caught.value.status, caught.value.code) == (502, "unexpected_answer")
    assert caught.value.retryable


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"[1]", b"7"])
def test_a_success_without_a_json_object_is_an_error(peer, body):
    """Another web server at the URL must not look like an empty gateway."""
    peer.will_answer(200, body)

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayError, match="unexpected_answer"):
        client.topics.list()


def test_a_response_without_a_body_is_an_empty_dict(peer):
    """204 is a success, not a malformed document."""
    peer.will_answer(204)

    with Client(peer.url, retry_for=0) as client:
        assert client.topics.delete("orders") == {}


def test_a_closed_port_is_unreachable_with_a_known_outcome():
    """A caller may repeat a publish safely only if the first one was not sent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    with Client(url, retry_for=0) as client, pytest.raises(GatewayUnreachable) as caught:
        client.publish("orders", "hello")

    assert url in caught.value.detail
    assert not caught.value.is_outcome_unknown


def test_a_connection_closed_without_a_response_leaves_the_outcome_unknown(peer):
    """The message may be stored, so an unconditional repeat may create a duplicate."""
    peer.will_hang_up()

    with Client(peer.url, retry_for=0) as client, pytest.raises(GatewayUnreachable) as caught:
        client.publish("orders", "hello")

    assert caught.value.is_outcome_unknown


def test_no_response_within_the_timeout_is_unreachable():
    """A gateway that accepts and does not respond must not block its caller forever."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"

        with (
            Client(url, timeout=timedelta(milliseconds=50), retry_for=0) as client,
            pytest.raises(GatewayUnreachable) as caught,
        ):
            client.info()

    assert caught.value.is_outcome_unknown


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://", "http://[::1", "/v1"])
def test_a_malformed_url_is_refused_at_once(url):
    """A wrong setting must fail when the client is created, not at the first message."""
    with pytest.raises(ValueError, match="not"):
        Client(url, retry_for=0)


@pytest.mark.parametrize("key", ["", "secret\n", "gehe\u00efm", "se\x00cret"])
def test_a_key_that_is_no_valid_header_is_refused_without_being_shown(key):
    """An error that quotes a key would write it to logs."""
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        Client("http://127.0.0.1:8080", key)

    assert not key or key not in str(caught.value)
