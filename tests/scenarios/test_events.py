"""Events: exactly what responses reported to clients, with both times, and nothing about internal topics."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from event_ledger import Ledger
from message_calls import Call, dead, operate, parked, publish, put, shop, take

from event_log import batches, events
from mqgate import bootstrap
from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant
from mqgate.settings import Settings
from mqgate.testing.clock import ManualClock

HOUR = 3600
PassTime = Callable[[float], None]


@pytest.fixture
async def ledger(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> Ledger:
    """Create topic `orders`. Timers run only when the test calls the dispatcher."""
    await gateway.dispatcher.stop()
    await put(api, "topics/orders", queues=2)
    await put(api, "producers/till", topic="orders")
    return Ledger(api)


def at(text: str) -> int:
    return milliseconds(parse_instant(text, "test"))


async def test_every_stored_message_has_one_published_event(
    gateway: bootstrap.Gateway, ledger: Ledger, pass_time: PassTime
) -> None:
    """A repeated idempotency key adds none, and a delayed message has its event when it is stored."""
    await ledger.publish({"body": "a"}, {"body": "bb", "key": "k"}, {"body": ""}, producer="till")
    await ledger.publish({"body": "once", "idempotencyKey": "x"})
    await ledger.publish({"body": "once", "idempotencyKey": "x"})
    await ledger.publish({"body": "other", "idempotencyKey": "x"})
    later = await ledger.publish(*[{"body": "later", "delay": 60}] * 3, producer="till")
    for _ in range(2):
        await ledger.api.delete(f"/v1/scheduled/{later[0]['id']}")
    ledger.add("cancelled", 1)
    pass_time(61)
    ledger.add("published", await gateway.dispatcher.run_once())

    await gateway.events.run_once()

    assert await ledger.recorded_events() == ledger.counts
    found = await events(ledger.api)
    assert {(row["kind"], row["outcome"]) for row in found if row["kind"] == "refused"} == {
        ("refused", "empty_body"),
        ("refused", "idempotency_mismatch"),
    }
    assert {row["id"] for row in found if row["kind"] == "cancelled"} == {later[0]["id"]}
    due = [(row["producer"], row["stored_at"]) for row in found if row["kind"] == "scheduled"]
    assert due == [("till", at(message["deliverAt"])) for message in later]
    assert sorted(row["bytes"] for row in found if row["producer"] == "till" and row["kind"] == "published") == [1, 2]


async def test_every_delivery_of_message_mode_has_one_end_event(
    gateway: bootstrap.Gateway, ledger: Ledger, pass_time: PassTime
) -> None:
    """Acked, nacked, extended, expired, dead-lettered, redriven and redelivered messages are counted exactly."""
    await put(ledger.api, "groups/workers", topic="orders", backoff=["0s"], maxAttempts=2)
    await ledger.publish(*[{"body": f"{number}", "key": f"{number}"} for number in range(8)])
    first = (await ledger.receive("workers", clientId="ada"))["messages"]
    await ledger.settle("ack", "workers", *first[:3])
    await ledger.settle("ack", "workers", first[0], "forged")
    await ledger.settle("nack", "workers", *first[3:5], reason="odd")
    await ledger.settle("extend", "workers", first[5], visibility=60)
    pass_time(HOUR)
    second = (await ledger.receive("workers"))["messages"]
    ledger.add("lease_expired", 3, "workers")
    await ledger.settle("nack", "workers", *second[:2])
    pass_time(HOUR)
    ledger.add("lease_expired", 3, "workers")
    ledger.add("dead", len(await dead(ledger.api)), "workers")
    await ledger.settle("ack", "workers", second[0], second[4])
    await operate(ledger.api, "dead-letters/redrive", all=True)
    third = (await ledger.receive("workers"))["messages"]
    await ledger.receive("workers", acks=[message["receipt"] for message in third])

    await gateway.events.run_once()

    assert (len(second), len(third)) == (5, 5)
    assert await ledger.recorded_events() == ledger.counts
    found = await events(ledger.api)
    assert {row["topic"] for row in found} == {"orders"}
    assert {row["client"] for row in found if row["delivery"] == 1 and row["kind"] == "delivered"} == {"ada", None}
    assert {row["reason"] for row in found if row["kind"] == "nacked"} == {"odd", None}
    gone = {(row["id"], row["delivery"]) for row in found if row["kind"] == "dead"}
    assert gone == {(message["id"], 2) for message in second}


async def test_queue_mode_events_count_every_message(
    gateway: bootstrap.Gateway, ledger: Ledger, pass_time: PassTime
) -> None:
    """A batch, a partial ack, an expired lease and a seek count the messages that they cover."""
    await put(ledger.api, "groups/lane", topic="orders", mode="queue")
    await ledger.publish(*[{"body": f"{number}", "key": "same"} for number in range(20)])
    first = await ledger.receive("lane", max=10, attemptId="a1")
    again = await ledger.receive("lane", max=10, attemptId="a1", is_replay=True)
    await ledger.settle("ack", "lane", again["lease"], count=4, through=3)
    second = await ledger.receive("lane", max=5)
    await ledger.settle("nack", "lane", second["lease"], count=5, delay=0)
    third = await ledger.receive("lane", max=5)
    pass_time(HOUR)
    fourth = await ledger.receive("lane", max=2)
    ledger.add("lease_expired", 5, "lane")
    await ledger.settle("ack", "lane", third["lease"])
    await ledger.settle("ack", "lane", fourth["lease"], count=2)
    moved = (await operate(ledger.api, "seek", "lane", to="latest"))["queues"]
    ledger.add("skipped", sum(seek_result["skipped"] for seek_result in moved), "lane")
    await operate(ledger.api, "seek", "lane", to="earliest")

    await gateway.events.run_once()

    assert again["lease"]["receipt"] == first["lease"]["receipt"]
    assert ledger.counts["skipped", "lane"] == 14
    assert await ledger.recorded_events() == ledger.counts


async def test_filtered_messages_are_recorded(gateway: bootstrap.Gateway, ledger: Ledger) -> None:
    """They are settled for the group without a delivery, which no other event shows."""
    await put(ledger.api, "groups/picky", topic="orders", filter={"tags": ["red"]})
    tags = ["red", "blue", "blue", "red", "green", "blue"]
    await ledger.publish(*[{"body": tag, "tag": tag, "key": "same"} for tag in tags])
    received = await ledger.receive("picky", attemptId="a1")
    await ledger.receive("picky", attemptId="a1", is_replay=True)
    ledger.add("filtered", 4, "picky")

    await gateway.events.run_once()

    assert len(received["messages"]) == 2
    assert await ledger.recorded_events() == ledger.counts
    assert [row["count"] for row in await events(ledger.api, "filtered")] == [2, 2]


async def test_events_name_the_broadcast_client(gateway: bootstrap.Gateway, ledger: Ledger) -> None:
    """Each client has its own deliveries and acks, also if the ack does not name the client."""
    await put(ledger.api, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await ledger.publish(*[{"body": f"{number}", "key": "same"} for number in range(3)])
    for client in ("ada", "ben"):
        received = await ledger.receive("all", clientId=client)
        await ledger.settle("ack", "all", received["lease"], count=3)

    await gateway.events.run_once()

    assert await ledger.recorded_events() == ledger.counts
    recorded = {(row["kind"], row["client"]) for row in await events(ledger.api, "delivered", "acked")}
    assert recorded == {(kind, client) for kind in ("delivered", "acked") for client in ("ada", "ben")}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_messages_deleted_by_retention_are_recorded_at_the_next_receive(
    gateway: bootstrap.Gateway, ledger: Ledger, clock: ManualClock
) -> None:
    """The event is a range, because the messages no longer exist. On RocketMQ, brokers delete on their own schedule."""
    await put(ledger.api, "topics/orders", retention="1h")
    await put(ledger.api, "groups/workers", topic="orders")
    await ledger.publish(*[{"body": f"{number}", "key": "same"} for number in range(5)])
    clock.advance(2 * HOUR)
    assert gateway.retention is not None
    await gateway.retention.run_once()
    await ledger.publish({"body": "new", "key": "same"})
    await ledger.receive("workers")

    await gateway.events.run_once()

    assert ledger.counts["retention_expired", "workers"] == 5
    assert await ledger.recorded_events() == ledger.counts
    assert [(row["offset"], row["count"]) for row in await events(ledger.api, "retention_expired")] == [(0, 5)]


async def test_a_settlement_event_has_the_store_and_grant_times_at_any_gateway(
    settings: Settings, clock: ManualClock, pass_time: PassTime
) -> None:
    """The receipt carries the times, here across a restart, so that latency needs no join."""
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = client_of(gateway)
        await shop(api, queues=1)
        await put(api, "groups/lane", topic="orders", mode="queue")
        await publish(api, "a", "b")
        pass_time(5)
        began = clock()
        one, other = await take(api)
        batch = (await api.post("/v1/groups/lane/receive", json={})).json()
    pass_time(7)

    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = client_of(gateway)
        await api.post("/v1/groups/workers/ack", json={"receipt": one["receipt"]})
        await api.post("/v1/groups/workers/extend", json={"receipt": other["receipt"]})
        await api.post("/v1/groups/workers/nack", json={"receipt": other["receipt"]})
        await api.post("/v1/groups/lane/ack", json={"receipt": batch["lease"]["receipt"]})
        await gateway.events.run_once()
        found = await events(api, "acked", "nacked", "extended")

    stored = [at(message["storedAt"]) for message in (one, other, other, *batch["messages"])]
    assert [row["kind"] for row in found] == ["acked", "extended", "nacked", "acked", "acked"]
    assert [row["stored_at"] for row in found] == stored
    assert {row["granted_at"] for row in found} == {began}
    assert {row["at"] for row in found} == {clock()}


def client_of(gateway: bootstrap.Gateway) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_carried_acks_of_a_disconnected_client_are_recorded(gateway: bootstrap.Gateway, ledger: Ledger) -> None:
    """They were applied before the client disconnected."""
    await put(ledger.api, "groups/workers", topic="orders")
    await ledger.publish({"body": "a"})
    (message,) = (await ledger.receive("workers"))["messages"]
    waiting = Call(gateway, wait=30, ack=[message["receipt"]])
    await parked(gateway, 1)
    waiting.disconnect()
    ledger.add("acked", 1, "workers")

    assert await waiting.response() is None
    await gateway.events.run_once()

    assert await ledger.recorded_events() == ledger.counts


async def test_polls_are_counted_by_outcome(gateway: bootstrap.Gateway, ledger: Ledger) -> None:
    """Hit, woken, timed out or empty, by group and client."""
    await put(ledger.api, "groups/workers", topic="orders")
    for _ in range(2):
        await ledger.receive("workers", clientId="ada")
    await ledger.receive("workers", wait=1)
    woken = Call(gateway, wait=30, clientId="ada")
    await parked(gateway, 1)
    await ledger.publish({"body": "a"})
    await woken.messages()
    await ledger.publish({"body": "b"})
    await ledger.receive("workers", wait=30)

    await gateway.events.run_once()

    found: dict[Any, int] = {}
    for batch in await batches(ledger.api):
        for row in batch.rows if batch.schema == "polls/1" else ():
            key = (row["group"], row["client"], row["outcome"])
            found[key] = found.get(key, 0) + row["count"]
    assert found == {
        ("workers", "ada", "empty"): 2,
        ("workers", None, "timed_out"): 1,
        ("workers", "ada", "woken"): 1,
        ("workers", None, "hit"): 1,
    }
