"""Calls that are sent again: which ones, to which gateway, and for how long."""

import inspect
import json
import socket
from datetime import timedelta

import pytest

from mqgate.client import AsyncClient, Client, GatewayError, GatewayUnreachable
from mqgate.client.blocking import run_blocking

BUSY = b'{"code": "overloaded", "detail": "later", "retryable": true}'


@pytest.fixture
def closed_url() -> str:
    """Return the address of a gateway that is down."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def _bodies(peer):
    return [json.loads(content) for _, _, _, content in peer.requests]


@pytest.mark.parametrize("status", [429, 503])
def test_a_retryable_refusal_is_repeated(peer, status):
    """An overloaded gateway must not be visible to an application that can wait."""
    peer.will_answer(status, BUSY, Retry_After="0")
    peer.will_answer(200, b'{"version": "1"}')

    with Client(peer.url) as client:
        assert client.info() == {"version": "1"}


def test_other_refusals_are_not_repeated(peer):
    """A malformed request stays malformed."""
    peer.will_answer(400, b'{"code": "invalid_value", "retryable": false}')

    with Client(peer.url) as client, pytest.raises(GatewayError):
        client.info()

    assert len(peer.requests) == 1


def test_a_pause_longer_than_the_deadline_ends_the_call(peer):
    """A caller gets the error of the gateway in time, not after its deadline."""
    peer.will_answer(503, BUSY, Retry_After="600")

    with Client(peer.url, retry_for=timedelta(seconds=5)) as client, pytest.raises(GatewayError, match="overloaded"):
        client.info()

    assert len(peer.requests) == 1


def test_a_publish_is_repeated_with_the_same_idempotency_key(peer):
    """The first request may have stored the message, so the second one must not store another."""
    peer.will_hang_up()
    peer.will_answer(201, b'{"id": "m1"}')

    with Client(peer.url) as client:
        assert client.publish("orders", "hello")["id"] == "m1"

    first, second = _bodies(peer)
    assert first == second
    assert first["idempotencyKey"]


def test_a_raw_publish_is_repeated_with_the_same_idempotency_key(peer):
    """Raw bodies have their key in a header."""
    peer.will_hang_up()
    peer.will_answer(201, b'{"id": "m1"}')

    with Client(peer.url) as client:
        client.publish_raw("orders", b"hello")

    first, second = (headers["Idempotency-Key"] for _, _, headers, _ in peer.requests)
    assert first == second


def test_a_receive_is_repeated_with_the_same_attempt_id(peer):
    """The first request may have leased messages, which the second one must return."""
    peer.will_hang_up()
    peer.will_answer(200, b'{"messages": [], "acked": [], "state": "ok"}')

    with Client(peer.url) as client:
        client.receive("billing", max=5, wait=timedelta(seconds=2))

    first, second = _bodies(peer)
    assert first == second
    assert (first["max"], first["wait"], bool(first["attemptId"])) == (5, 2.0, True)


def test_only_the_messages_that_may_succeed_later_are_sent_again(peer):
    """A batch may succeed in part, and a refused message stays refused."""
    later = {"status": 503, "error": {"code": "queue_unavailable", "retryable": True}}
    never = {"status": 400, "error": {"code": "invalid_value", "retryable": False}}
    peer.will_answer(207, json.dumps({"results": [{"status": 201, "id": "a"}, never, later]}).encode())
    peer.will_answer(200, json.dumps({"results": [{"status": 201, "id": "c"}]}).encode())

    with Client(peer.url) as client:
        results = client.publish_batch("orders", [{"body": "a"}, {"body": "b"}, {"body": "c"}])

    first, second = _bodies(peer)
    assert [result["status"] for result in results] == [201, 400, 201]
    assert second["messages"] == [first["messages"][2]]


def test_a_call_that_is_not_repeatable_is_sent_once_if_its_response_is_lost(peer):
    """Two keys would be created, of which nobody knows the first."""
    peer.will_hang_up()

    with Client(peer.url) as client, pytest.raises(GatewayUnreachable) as lost:
        client.keys.create({"role": "admin"})

    assert lost.value.is_outcome_unknown
    assert len(peer.requests) == 1


def test_without_retries_nothing_is_added_to_a_message(peer):
    """A caller with its own retries also has its own keys."""
    peer.will_answer(201, b"{}")

    with Client(peer.url, retry_for=0) as client:
        client.publish("orders", "hello")

    assert _bodies(peer) == [{"body": "hello"}]


def test_a_gateway_that_is_down_is_replaced_by_the_next_one(peer, closed_url):
    """The application must not notice, also for calls that cannot be repeated: this one was never sent."""
    peer.will_answer(201, b'{"id": "k1"}')
    peer.will_answer(200, b"{}")

    with Client([closed_url, peer.url]) as client:
        created = client.keys.create({"role": "admin"})
        client.info()

        assert (created["id"], client.url) == ("k1", peer.url)


def test_all_gateways_down_is_reported_after_the_deadline(closed_url):
    """A program must not hang without a word while nothing responds."""
    with Client([closed_url, closed_url], retry_for=0.5) as client, pytest.raises(GatewayUnreachable) as unreachable:
        client.publish("orders", "hello")

    assert not unreachable.value.is_outcome_unknown


async def test_the_async_client_repeats_calls_in_the_same_way(peer, closed_url):
    """Both clients are one implementation over two transports."""
    peer.will_hang_up()
    peer.will_answer(503, BUSY, Retry_After="0")
    peer.will_answer(201, b'{"id": "m1"}')

    async with AsyncClient([closed_url, peer.url]) as client:
        assert (await client.publish("orders", "hello"))["id"] == "m1"

    assert len({json.dumps(body) for body in _bodies(peer)}) == 1


def test_the_blocking_client_has_every_operation_of_the_async_one():
    """An operation that is added to one client must not be missing in the other."""
    with Client("http://127.0.0.1:1") as client:
        pairs = [(client, client.core)]
        pairs += [(part, part.core) for part in vars(client).values() if part is not client.core]
        for facade, core in pairs:
            operations = {
                name
                for name, member in inspect.getmembers(type(core), inspect.iscoroutinefunction)
                if not name.startswith("_")
            }
            assert operations
            assert operations - set(dir(facade)) == set(), type(facade)


def test_a_coroutine_that_suspends_is_refused():
    """A blocking call without an event loop could never continue it."""

    class Suspends:
        def __await__(self):
            yield

    async def suspends() -> None:
        await Suspends()

    with pytest.raises(RuntimeError, match="suspended"):
        run_blocking(suspends())
