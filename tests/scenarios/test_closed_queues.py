"""Closed queues: a broker is down. Other queues continue, and its messages are neither lost nor counted as failed."""

import asyncio
from typing import Any

import httpx
import pytest
from message_calls import (
    Call,
    ack,
    bodies,
    counts,
    dead,
    dead_ids,
    lag,
    operate,
    outcome,
    parked,
    publish,
    put,
    receive,
    shop,
    take,
    until,
)
from outage import Outage, key_for

from mqgate import bootstrap
from mqgate.core.errors import StorageUnavailable
from mqgate.testing.clock import ManualClock

# Queues that fail on demand are made of the embedded log; tests/faults tells it of real brokers.
pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
FIRST, SECOND = "orders/local:0", "orders/local:1"
MODES = pytest.mark.parametrize("mode", ["message", "queue", "broadcast"])


@pytest.fixture
def outage(gateway: bootstrap.Gateway) -> Outage:
    return Outage(gateway)


@pytest.fixture
def live_outage(live: bootstrap.Gateway) -> Outage:
    return Outage(live)


async def filled(api: httpx.AsyncClient, **group: Any) -> dict[str, Any]:
    """Create two queues before the first receive, the first one with more messages."""
    is_broadcast = group.get("mode") == "broadcast"
    await shop(api, queues=2, **group, **({"start": "earliest"} if is_broadcast else {}))
    await publish(api, "a", "b", "c", key=key_for(0))
    await publish(api, "x", key=key_for(1))
    return {"clientId": "c"} if is_broadcast else {}


@MODES
@pytest.mark.parametrize("kind", ["closed", "unreadable"])
async def test_a_closed_queue_does_not_delay_others_and_resumes_at_its_position(
    api: httpx.AsyncClient, outage: Outage, mode: str, kind: str
) -> None:
    """The other messages are delivered, then the state is busy. When the queue opens, its messages count as new."""
    who = await filled(api, mode=mode)
    getattr(outage, kind).add(FIRST)

    first = await receive(api, **who)
    rest = await receive(api, **who)
    outage.end()
    back = await receive(api, **who)

    assert bodies(first["messages"]) == ["x"]
    assert (rest["messages"], rest["state"]) == ([], "busy")
    assert bodies(back["messages"]) == ["a", "b", "c"]
    assert {message["delivery"] for message in back["messages"]} == {1}


async def test_the_number_of_scopes_with_closed_queues_in_memory_is_limited(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose their names, so memory must not grow with them. An evicted scope must miss nothing."""
    monkeypatch.setattr("mqgate.consumption.receive._MAX_SCOPES", 3)
    await filled(api, mode="broadcast")
    outage.closed.add(FIRST)
    clients = [{"clientId": f"c{number}"} for number in range(9)]
    for client in clients:
        assert bodies((await receive(api, **client))["messages"]) == ["x"]

    remembered = len(gateway.long_poll._receiver._reported)
    outage.end()
    back = [bodies((await receive(api, **client))["messages"]) for client in clients]

    assert remembered <= 3
    assert back == [["a", "b", "c"]] * len(clients)


@MODES
async def test_a_queue_that_the_log_reports_as_closed_is_not_read(
    api: httpx.AsyncClient, outage: Outage, mode: str
) -> None:
    """With a real broker, every read that is known to fail would cost each receive a time-out."""
    who = await filled(api, mode=mode)
    outage.closed.add(FIRST)

    for _ in range(3):
        await receive(api, **who)

    assert outage.failed_reads == 0


@MODES
async def test_a_receive_is_empty_and_no_error_if_every_queue_is_closed(
    api: httpx.AsyncClient, outage: Outage, mode: str
) -> None:
    """The ack that it carries is applied and reported."""
    who = await filled(api, mode=mode)
    outage.closed.add(FIRST)
    given = await receive(api, **who)
    outage.closed.clear()
    outage.unreadable |= {FIRST, SECOND}
    receipt = given["lease"]["receipt"] if "lease" in given else given["messages"][0]["receipt"]

    empty = await receive(api, ack=[receipt], **who)

    assert (empty["messages"], empty["state"]) == ([], "busy")
    assert empty["acked"] == [{"outcome": "applied"}]


@pytest.mark.parametrize(
    "settings_", [{"ordered": True}, {"filter": {"tags": ["t"]}}, {"rateLimit": {"rate": 0.001, "burst": 3}}]
)
async def test_a_range_that_could_not_be_read_is_released_in_every_kind_of_group(
    api: httpx.AsyncClient, outage: Outage, settings_: dict[str, Any]
) -> None:
    """The filter settles none of its messages, the order of keys is kept, and its tokens are refunded."""
    await shop(api, queues=2, **settings_)
    await publish(api, "a", "b", key=key_for(0), tag="t")
    await publish(api, "x", key=key_for(1), tag="t")
    outage.unreadable.add(FIRST)
    partly = await take(api)
    while_down = await counts(api)
    outage.end()

    found = bodies(partly)
    for _ in range(2):
        for message in await take(api):
            await ack(api, message)
            found.append(message["body"])

    assert bodies(partly) == ["x"]
    assert while_down == (2, 1, 0)
    assert found == ["x", "a", "b"]


@MODES
async def test_another_failure_of_the_log_is_an_error_and_releases_the_leases(
    api: httpx.AsyncClient, outage: Outage, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Only closed queues are skipped silently."""
    who = await filled(api, mode=mode)

    async def fails(*_: Any) -> Any:
        raise StorageUnavailable("no broker at all")

    with monkeypatch.context() as patch:
        patch.setattr(outage._log, "read", fails)
        answer = await api.post("/v1/groups/workers/receive", json=who)
    back = await receive(api, **who)

    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert {message["delivery"] for message in back["messages"]} == {1}


@pytest.mark.parametrize("mode", ["message", "queue"])
@pytest.mark.parametrize("kind", ["closed", "unreadable"])
async def test_a_message_exhausted_in_a_closed_queue_is_dead_lettered_when_it_opens(
    api: httpx.AsyncClient, outage: Outage, mode: str, kind: str
) -> None:
    """The last nack applies at once. Lag, dead letters and receives work meanwhile. Then there is one dead letter."""
    await filled(api, mode=mode, maxAttempts=1)
    given = await receive(api, max=1)
    message = given["messages"][0] | given.get("lease", {})
    place = f"orders/{message['queue']}"
    getattr(outage, kind).add(place)

    nacked = await outcome(api, "nack", message)
    while_down = (await dead(api), (await lag(api))["lag"], (await receive(api, max=1))["messages"])
    outage.end()

    assert nacked == (200, "applied")
    assert while_down[0] == []
    assert while_down[1] == 4
    assert [other["queue"] for other in while_down[2]] == [{"orders/local:0": "local:1"}.get(place, "local:0")]
    assert await dead_ids(api) == [given["messages"][0]["id"]]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_an_expired_last_lease_in_a_closed_queue_is_dead_lettered_when_it_opens(
    api: httpx.AsyncClient, outage: Outage, clock: ManualClock, mode: str
) -> None:
    """No client gets the message once too often, and no receive polls for it in a loop."""
    await shop(api, mode=mode, maxAttempts=1)
    await publish(api, "a")
    await receive(api)
    clock.advance(31)
    outage.closed.add(FIRST)

    while_down = await receive(api)
    outage.closed.clear()
    outage.unreadable.add(FIRST)
    unannounced = await receive(api)
    outage.end()

    assert [response["messages"] for response in (while_down, unannounced)] == [[], []]
    assert len(await dead(api)) == 1


async def test_the_private_log_of_a_group_may_be_closed_too(api: httpx.AsyncClient, outage: Outage) -> None:
    """Redriven messages wait for it. The messages of the topic are delivered."""
    await shop(api, maxAttempts=1, backoff=[0])
    await publish(api, "a")
    (message,) = await take(api)
    await outcome(api, "nack", message)
    await operate(api, "dead-letters/redrive", all=True)
    await publish(api, "b")
    outage.closed.add("mqgate_retry_workers/local:0")

    while_down = [bodies((await receive(api))["messages"]) for _ in range(2)]
    outage.end()

    assert while_down == [["b"], []]
    assert outage.failed_reads == 0
    assert bodies(await take(api)) == ["a"]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_repeated_attempt_whose_queue_is_closed_is_granted_other_messages(
    api: httpx.AsyncClient, outage: Outage, mode: str
) -> None:
    """Its client did not get the response, and the same messages cannot be read now."""
    await shop(api, queues=2, mode=mode)
    await publish(api, "a", key=key_for(0))
    first = await receive(api, attemptId="a1")
    await publish(api, "x", key=key_for(1))
    outage.closed.add(FIRST)

    again = await receive(api, attemptId="a1")
    outage.end()

    assert bodies(first["messages"]) == ["a"]
    assert bodies(again["messages"]) == ["x"]
    assert await receive(api, attemptId="a1") == again


async def test_reads_name_the_group_and_appends_name_the_producer(api: httpx.AsyncClient, outage: Outage) -> None:
    """Brokers show them to operators as consumerGroup and producerGroup."""
    await filled(api)
    await put(api, "producers/till", topic="orders")
    responses = [
        await api.post("/v1/topics/orders/messages?producer=till", json={"body": "y", **key})
        for key in ({}, {"idempotencyKey": "k"})
    ]

    await receive(api)

    assert [answer.status_code for answer in responses] == [201, 201]
    assert outage.producers == ["", "", "till", "till"]
    assert set(outage.groups) == {"workers"}


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_queue_that_fails_without_being_closed_is_retried_once_a_second(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, live_outage: Outage, mode: str
) -> None:
    """All parked receives share the retry, and get the messages soon after the queue works again."""
    await filled(live_api, mode=mode)
    live_outage.unreadable |= {FIRST, SECOND}
    calls = [Call(live, wait=20) for _ in range(3)]
    await parked(live, 3)
    await asyncio.sleep(2.2)
    tried = live_outage.failed_reads
    live_outage.end()

    served = 2 if mode == "queue" else 1
    await until(lambda: sum(call.task.done() for call in calls) == served, seconds=3)
    for call in calls:
        call.disconnect()
    found = [message for call in calls for message in ((await call.response()) or {"messages": []})["messages"]]

    # Two queues each: the first tries of three, and those of two seconds.
    assert 6 <= tried <= 12
    assert sorted(bodies(found)) == ["a", "b", "c", "x"]


async def test_an_unreadable_range_does_not_wake_the_next_parked_receive(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, live_outage: Outage
) -> None:
    """Its messages are ready again, but every woken receive would fail to read them."""
    await filled(live_api)
    live_outage.unreadable |= {FIRST, SECOND}
    waiting = Call(live, wait=20)
    await parked(live, 1)
    live_outage.unreadable.remove(SECOND)
    before = live_outage.failed_reads

    passer_by = await take(live_api)
    await asyncio.sleep(0.2)
    tried = live_outage.failed_reads - before
    waiting.disconnect()
    await waiting.response()

    assert bodies(passer_by) == ["x"]
    assert tried == 1


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_receive_parked_for_a_closed_queue_sleeps_until_it_opens(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, live_outage: Outage, mode: str
) -> None:
    """It does not retry meanwhile, although redeliveries are overdue. It is woken when the log reports the queue."""
    await shop(live_api, mode=mode, backoff=[0])
    await publish(live_api, "a")
    given = await receive(live_api)
    await outcome(live_api, "nack", given["messages"][0] | given.get("lease", {}), delay=0)
    live_outage.closed.add(FIRST)
    empties = live.long_poll._metrics.empty_wake_ups._value.get()
    call = Call(live, wait=20)
    await parked(live, 1)
    await asyncio.sleep(0.5)
    woken = live.long_poll._metrics.empty_wake_ups._value.get() - empties

    live_outage.end()
    async with asyncio.timeout(5):
        messages = await call.messages()

    assert woken == 0
    assert live_outage.failed_reads == 0
    assert [(message["body"], message["delivery"]) for message in messages] == [("a", 2)]
