"""The worker against a running gateway."""

import asyncio
import threading
from collections import Counter
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from response_balancer import balancing

from eventually import until
from mqgate.client import AsyncClient, Client, EventKind, GatewayError, Reject, Retry, Worker, WorkerError


@pytest.fixture
def group(client: Client) -> str:
    """Create a topic and a group in message mode, which have the same name."""
    name = f"work-{uuid4().hex}"
    client.topics.put(name, {"queues": 2})
    client.groups.put(name, {"topic": name, "visibility": 30, "maxAttempts": 4, "backoff": ["0s"]})
    return name


def _publish(client: Client, topic: str, count: int) -> list[str]:
    results = client.publish_batch(topic, [{"body": str(number)} for number in range(count)])
    return [result["id"] for result in results]


async def _run_until(worker: Worker, is_done) -> None:
    running = asyncio.create_task(worker.run_async())
    try:

        async def is_so():
            assert not running.done(), running.result()
            return is_done()

        await until(is_so)
    finally:
        worker.stop()
        await running


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_every_message_is_handled_and_acknowledged(client, group, gateway_url, kind):
    """An application writes a function, and nothing else."""
    ids = _publish(client, group, 100)
    worker = Worker(gateway_url)
    handled = []

    if kind == "async":

        @worker.handler(group)
        async def handle(message):
            handled.append(message.id)

    else:

        @worker.handler(group)
        def handle(message):
            handled.append(message.id)

    await _run_until(worker, lambda: len(handled) == 100)

    assert sorted(handled) == sorted(ids)
    assert client.lag(group)["lag"] == 0


async def test_a_message_whose_handler_failed_is_delivered_again(client, group, gateway_url):
    """The group decides on the backoff, and `Retry` on a delay of its own."""
    (message_id,) = _publish(client, group, 1)
    deliveries, events = [], []
    worker = Worker(gateway_url, on_event=events.append)

    @worker.handler(group)
    def handle(message):
        deliveries.append((message.id, message.delivery))
        if message.delivery == 1:
            raise ValueError("bad day")
        if message.delivery == 2:
            raise Retry("not yet", delay=0)

    await _run_until(worker, lambda: any(event.kind is EventKind.HANDLED for event in events))

    assert deliveries == [(message_id, 1), (message_id, 2), (message_id, 3)]
    assert [event.kind for event in events] == [EventKind.FAILED, EventKind.FAILED, EventKind.HANDLED]
    assert isinstance(events[0].error, ValueError)
    assert client.lag(group)["lag"] == 0


async def test_a_rejected_message_is_dead_lettered_after_one_call_of_its_handler(client, group, gateway_url):
    """Work that cannot succeed must not be repeated, and must remain visible."""
    (message_id,) = _publish(client, group, 1)
    calls, letters = [], []
    worker = Worker(gateway_url)

    @worker.handler(group)
    def handle(message):
        calls.append(message.id)
        raise Reject("no such customer")

    def is_dead():
        letters[:] = client.dead_letters.list(group)["items"]
        return letters

    await _run_until(worker, is_dead)

    assert calls == [message_id]
    assert (letters[0]["id"], letters[0]["deliveries"]) == (message_id, 4)


async def test_a_handler_may_take_longer_than_a_lease(client, group, gateway_url):
    """Leases of 2 s are extended for as long as a handler of 4 s is alive, in both kinds of handlers."""
    _publish(client, group, 6)
    events = []
    worker = Worker(gateway_url, visibility=2, concurrency=6, on_event=events.append)

    @worker.handler(group)
    def handle(_message):
        threading.Event().wait(4)

    await _run_until(worker, lambda: len(events) == 6)

    assert [event.kind for event in events] == [EventKind.HANDLED] * 6
    assert client.lag(group)["lag"] == 0


async def test_a_handler_that_never_returns_loses_its_message_at_its_time_limit(client, group, gateway_url, caplog):
    """The message moves on, the other messages are handled, and the log says what to do."""
    _publish(client, group, 1)
    release, handled = threading.Event(), []
    worker = Worker(gateway_url, visibility=1, concurrency=1, time_limit=0.2, on_event=handled.append)

    @worker.handler(group)
    def handle(message):
        if message.delivery == 1:
            release.wait(60)

    await _run_until(worker, lambda: any(event.kind is EventKind.HANDLED for event in handled))
    release.set()

    assert [event.kind for event in handled] == [EventKind.FAILED, EventKind.HANDLED]
    assert "give the handler a time-out, or raise time_limit" in caplog.text


async def test_acks_are_carried_by_the_next_receive(client, group, gateway_url):
    """A busy worker makes one request per batch."""
    _publish(client, group, 400)
    handled = []
    with balancing(gateway_url) as (balancer, _):
        # Longer than the test, so that only receives carry acks.
        worker = Worker(balancer.url, prefetch=100, ack_linger=60)

        @worker.handler(group)
        async def handle(message):
            handled.append(message.id)

        await _run_until(worker, lambda: len(handled) == 400)
        receives = [path for path in balancer.requests if path.endswith("/receive")]

    # One reads the group, one may be parked at the end, and one acknowledges the rest.
    assert len(balancer.requests) <= len(receives) + 2
    assert len(receives) <= 400 / 50 + 3
    assert client.lag(group)["lag"] == 0


async def test_no_message_is_missed_or_repeated_behind_a_balancer_that_loses_responses(client, group, gateway_url):
    """A lost response of a receive is repeated with its attempt id, and that of an ack is a duplicate."""
    ids = _publish(client, group, 300)
    handled, failed = [], []
    with balancing(gateway_url) as (balancer, _):
        balancer.loses_every = 4
        worker = Worker(balancer.url, prefetch=20, on_event=lambda event: failed.append(event.error))

        @worker.handler(group)
        async def handle(message):
            handled.append((message.id, message.delivery))

        await _run_until(worker, lambda: len(handled) >= 300)

    assert Counter(handled) == Counter((message_id, 1) for message_id in ids)
    assert balancer.lost
    assert failed == [None] * 300
    assert client.lag(group)["lag"] == 0


async def test_a_worker_goes_on_with_the_second_gateway_when_the_first_one_dies(client, group, gateway_url):
    """No handler sees an error of the network, and no message is missed."""
    ids = _publish(client, group, 200)
    handled = []
    with balancing(gateway_url) as (first, server), balancing(gateway_url) as (second, _):
        worker = Worker([first.url, second.url], prefetch=10)

        @worker.handler(group)
        def handle(message):
            handled.append(message.id)
            if len(handled) == 50:
                server.shutdown()
                server.server_close()
                first.loses_every = 1

        await _run_until(worker, lambda: len(set(handled)) == 200)

    assert set(handled) == set(ids)
    assert second.requests
    assert client.lag(group)["lag"] == 0


async def test_stop_releases_what_no_handler_has_begun(client, group, gateway_url):
    """Another worker takes over at once, not when the leases end."""
    _publish(client, group, 10)
    begun, events = threading.Event(), []
    release = threading.Event()
    worker = Worker(gateway_url, concurrency=1, prefetch=10, on_event=events.append)

    @worker.handler(group)
    def handle(_message):
        begun.set()
        release.wait(60)

    running = asyncio.create_task(worker.run_async())
    await asyncio.to_thread(begun.wait, 60)
    worker.stop()
    async with AsyncClient(gateway_url) as other:
        received = await other.receive(group, max=100, wait=30)
    release.set()
    await running

    assert len(received["messages"]) >= 1
    assert Counter(event.kind for event in events) == {EventKind.RELEASED: 9, EventKind.HANDLED: 1}


async def test_a_missing_group_ends_the_worker_with_its_error(gateway_url):
    """A typing error must not look like an idle worker."""
    worker = Worker(gateway_url)
    worker.handler("nobody")(print)

    with pytest.raises(GatewayError, match="group_not_found"):
        await worker.run_async()


async def test_a_group_of_another_mode_is_refused(client, names, gateway_url):
    """Its messages have no leases of their own."""
    worker = Worker(gateway_url)
    worker.handler(names[2])(print)

    with pytest.raises(WorkerError, match="queue mode"):
        await worker.run_async()


async def test_a_trace_goes_on_in_the_handler(client, group, gateway_url):
    """The W3C context travels in the properties of the message."""
    trace.set_tracer_provider(TracerProvider())
    with trace.get_tracer("shop").start_as_current_span("order") as published:
        client.publish(group, "hello")
    spans = []
    worker = Worker(gateway_url)

    @worker.handler(group)
    def handle(_message):
        spans.append(trace.get_current_span())

    await _run_until(worker, lambda: spans)

    assert spans[0].context.trace_id == published.get_span_context().trace_id
    assert spans[0].name == f"process {group}"
