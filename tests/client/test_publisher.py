"""Publishing in the background: results, limits, order and the end."""

import asyncio
import json
import threading
from concurrent.futures import wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from mqgate.client import Client, GatewayError, GatewayUnreachable, Publisher, PublisherClosed, PublisherFull, body_of


@pytest.fixture
def stalled():
    """Return a client of a server whose responses wait until they are released, and the bodies that it got."""
    released, sent = threading.Event(), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append([envelope["body"] for envelope in content["messages"]])
            assert released.wait(60)
            results = [{"status": 201, "id": envelope["body"]} for envelope in content["messages"]]
            answer = json.dumps({"results": results}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with Client(f"http://127.0.0.1:{server.server_port}") as client:
        yield SimpleNamespace(client=client, released=released, sent=sent)
    server.shutdown()
    thread.join()
    server.server_close()


def _until_sent(stalled):
    while not stalled.sent:
        threading.Event().wait(0.001)


def test_every_message_has_a_result_of_its_own(client, names):
    """An application must know which of its messages is stored where."""
    topic, producer, group = names

    with Publisher(client, producer=producer) as publisher:
        futures = [publisher.publish(topic, {"number": number}, key="k") for number in range(1_000)]
        assert publisher.flush(60)

    stored = [future.result(0)["id"] for future in futures]
    received = client.receive(group, max=1_000)["messages"]
    assert [message["id"] for message in received] == stored
    assert [json.loads(body_of(message))["number"] for message in received] == list(range(1_000))


def test_a_refused_message_has_an_error_and_the_others_are_stored(client, names):
    """One bad message must not cost a batch."""
    topic, producer, _ = names

    with Publisher(client, producer=producer) as publisher:
        good, bad = publisher.publish(topic, "a"), publisher.publish(topic, "b", properties={"x": ""})

    assert good.result(0)["status"] == 201
    with pytest.raises(GatewayError) as refused:
        bad.result(0)
    assert refused.value.status == 400


def test_a_gateway_that_does_not_respond_is_the_error_of_the_messages():
    """No future may stay open, and no sender may end with its first failure."""
    with Client("http://127.0.0.1:1", retry_for=0) as client, Publisher(client) as publisher:
        futures = [publisher.publish("orders", "hello")]
        publisher.flush()
        futures.append(publisher.publish("orders", "hello"))

    for future in futures:
        with pytest.raises(GatewayUnreachable):
            future.result(0)


@pytest.mark.parametrize("limit", [{"max_messages": 2}, {"max_bytes": 150}])
def test_memory_is_bounded(stalled, limit):
    """A gateway that is slower than its producers must not fill their memory."""
    publisher = Publisher(stalled.client, **limit)
    accepted = [publisher.publish("orders", str(number)) for number in range(2)]

    with pytest.raises(PublisherFull, match="more slowly"):
        publisher.publish("orders", "one too many", timeout=0.01)
    stalled.released.set()
    accepted.append(publisher.publish("orders", "accepted after all"))
    publisher.close()

    assert [future.result(0)["status"] for future in accepted] == [201, 201, 201]


def test_messages_that_arrive_during_a_request_are_sent_as_one_batch(stalled):
    """One request per message would cost a round trip each."""
    publisher = Publisher(stalled.client, max_batch=10, senders=1)
    first = publisher.publish("orders", "first")
    _until_sent(stalled)
    for number in range(12):
        publisher.publish("orders" if number < 11 else "invoices", str(number))
    stalled.released.set()
    publisher.close()

    assert first.done()
    assert [len(batch) for batch in stalled.sent] == [1, 10, 1, 1]


def test_close_sends_what_waits_and_refuses_more(client, names):
    """The last messages of a program are as important as the first."""
    topic, producer, _ = names
    publisher = Publisher(client, producer=producer, linger=60)
    waiting = [publisher.publish(topic, "a") for _ in range(3)]

    publisher.close()

    assert all(future.result(0)["status"] == 201 for future in waiting)
    with pytest.raises(PublisherClosed):
        publisher.publish(topic, "late")


def test_a_cancelled_future_does_not_stop_its_sender(stalled):
    """The message may be stored nevertheless; the other futures must end."""
    publisher = Publisher(stalled.client)
    cancelled, kept = publisher.publish("orders", "a"), publisher.publish("orders", "b")

    cancelled.cancel()
    stalled.released.set()
    publisher.close()

    assert not wait([kept], 0).not_done


async def test_an_event_loop_publishes_and_is_not_blocked_by_a_full_publisher(stalled):
    """Back-pressure holds one task, not the whole program."""
    publisher = Publisher(stalled.client, max_messages=1)
    first = asyncio.create_task(publisher.publish_async("orders", "a"))
    second = asyncio.create_task(publisher.publish_async("orders", "b"))
    await asyncio.to_thread(_until_sent, stalled)
    stalled.released.set()
    results = await asyncio.gather(first, second)
    await asyncio.to_thread(publisher.close)

    assert [result["status"] for result in results] == [201, 201]
