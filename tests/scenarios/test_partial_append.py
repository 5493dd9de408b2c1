"""Partial appends: one broker is down, others store. Every message has its outcome, none is lost or duplicated."""

from typing import Any

import httpx
import pytest
from message_calls import bodies, dead_ids, metric, outcome, publish, put, refused, send, shop, take, until
from outage import Outage, key_for

from mqgate import bootstrap
from mqgate.core.errors import OutcomeUnknown, QueueUnavailable
from mqgate.delay import dispatcher as dispatcher_module
from mqgate.testing.clock import ManualClock

FIRST, SECOND = "orders/local:0", "orders/local:1"
PRIVATE = "mqgate_retry_workers/local:0"
MESSAGES = "/v1/topics/orders/messages"


@pytest.fixture
async def outage(gateway: bootstrap.Gateway) -> Outage:
    """Timers run only when the test calls the dispatcher."""
    await gateway.dispatcher.stop()
    return Outage(gateway)


async def stored(api: httpx.AsyncClient) -> list[str]:
    response = await api.get(MESSAGES, params={"from": 0, "limit": 1000})
    return sorted(item["body"] for item in response.json()["items"])


async def waiting(api: httpx.AsyncClient) -> list[str]:
    """Return the ids of the scheduled messages."""
    return [item["id"] for item in (await api.get("/v1/scheduled")).json()["items"]]


async def batch(api: httpx.AsyncClient, *items: dict[str, Any]) -> httpx.Response:
    return await api.post(MESSAGES, json={"messages": list(items)})


@pytest.mark.parametrize(("kind", "code"), [("refusing", "queue_unavailable"), ("silent", "unknown")])
async def test_a_failed_publish_reports_the_reason(
    api: httpx.AsyncClient, outage: Outage, kind: str, code: str
) -> None:
    """The response is 503 with Retry-After. A message without a key goes to an available queue."""
    await shop(api, queues=2)
    getattr(outage, kind).add(FIRST)

    keyed = await send(api, body="a", key=key_for(0))
    keyless = await send(api, body="b")

    assert refused(keyed, 503, code)["retryable"] is True
    assert "retry-after" in keyed.headers
    assert keyless.status_code == 201
    assert await stored(api) == ["b"]


async def test_a_batch_reports_the_outcome_of_every_message(api: httpx.AsyncClient, outage: Outage) -> None:
    """The response is 207 with one result per index, also for invalid and delayed items. Metrics count stored ones."""
    await shop(api, queues=3)
    outage.refusing.add(FIRST)
    outage.silent.add(SECOND)
    items = [
        {"body": "down", "key": key_for(0, 3)},
        {"body": "up", "key": key_for(2, 3)},
        {"body": ""},
        {"body": "later", "key": key_for(0, 3), "delay": 60},
        {"body": "silent", "key": key_for(1, 3)},
        {"body": "any"},
    ]

    response = await batch(api, *items)

    results = response.json()["results"]
    assert response.status_code == 207
    assert "retry-after" in response.headers
    assert [result["status"] for result in results] == [503, 201, 400, 202, 503, 201]
    assert [results[index]["error"]["code"] for index in (0, 4)] == ["queue_unavailable", "unknown"]
    assert [results[index]["error"]["index"] for index in (0, 2, 4)] == [0, 2, 4]
    assert {results[index]["queue"] for index in (1, 5)} == {"local:2"}
    assert await stored(api) == ["any", "up"]
    assert await metric(api, 'mqgate_published_total{topic="orders"}') == 2


@pytest.mark.parametrize("kind", ["refusing", "silent"])
async def test_the_mq_dialect_reports_a_failed_send(api: httpx.AsyncClient, outage: Outage, kind: str) -> None:
    """500 with the reason: never 200 for a message that was not stored, and never 300, which promises a retry."""
    await put(api, "topics/orders", queues=1)
    await put(api, "producers/till", topic="orders")
    getattr(outage, kind).add(FIRST)

    response = await api.post("/mq/produce", data={"producer": "till", "message": "a"})

    assert response.json()["status"] == 500
    assert "broker" in response.json()["message"] or "queue" in response.json()["message"]


async def test_the_key_of_a_message_that_was_not_stored_is_free_again(api: httpx.AsyncClient, outage: Outage) -> None:
    """In one batch the stored key is kept, and the failed one may be used for another body."""
    await shop(api, queues=2)
    outage.refusing.add(FIRST)
    down, up = {"key": key_for(0), "idempotencyKey": "k0"}, {"key": key_for(1), "idempotencyKey": "k1"}
    first = await batch(api, {"body": "a", **down}, {"body": "x", **up})
    outage.end()

    again = await batch(api, {"body": "b", **down}, {"body": "x", **up})

    assert [result["status"] for result in first.json()["results"]] == [503, 201]
    assert [result["status"] for result in again.json()["results"]] == [201, 200]
    assert again.json()["results"][1]["offset"] == first.json()["results"][1]["offset"]
    assert await stored(api) == ["b", "x"]


@pytest.mark.parametrize("is_stored", [False, True], ids=["it was not stored", "it was stored"])
async def test_a_repeat_of_an_unknown_outcome_checks_the_log(
    api: httpx.AsyncClient, outage: Outage, is_stored: bool
) -> None:
    """It stores the missing message or finds the stored one: one message, one id. Another body is refused."""
    await shop(api)
    outage.silent.add(FIRST)
    outage.is_stored = is_stored
    silent = await send(api, body="a", idempotencyKey="k")
    outage.end()

    other = await send(api, body="b", idempotencyKey="k")
    again = await send(api, body="a", idempotencyKey="k")
    third = await send(api, body="a", idempotencyKey="k")

    refused(silent, 503, "unknown")
    refused(other, 422, "idempotency_mismatch")
    assert again.status_code == (200 if is_stored else 201)
    assert third.json() == {**again.json(), "duplicate": True}
    assert await stored(api) == ["a"]


async def test_a_repeat_is_refused_while_the_log_cannot_be_checked(api: httpx.AsyncClient, outage: Outage) -> None:
    """The unavailable broker may have the message, so another copy must not be sent. The other items are stored."""
    await shop(api)
    outage.silent.add(FIRST)
    outage.is_stored = True
    await send(api, body="a", idempotencyKey="k")
    outage.silent.clear()
    outage.cannot_look = True

    blind = await batch(api, {"body": "a", "idempotencyKey": "k"}, {"body": "x", "idempotencyKey": "k1"}, {"body": "y"})
    outage.end()
    again = await send(api, body="a", idempotencyKey="k")

    assert [result["status"] for result in blind.json()["results"]] == [503, 201, 201]
    assert again.status_code == 200
    assert await stored(api) == ["a", "x", "y"]


async def test_a_refusal_after_an_unknown_outcome_does_not_free_the_key(api: httpx.AsyncClient, outage: Outage) -> None:
    """The first append may still complete. If the key were free, another body could be stored under it."""
    await shop(api)
    outage.silent.add(FIRST)
    await send(api, body="a", idempotencyKey="k")
    outage.silent.clear()
    outage.refusing.add(FIRST)
    second = await send(api, body="a", idempotencyKey="k")
    outage.end()

    other = await send(api, body="b", idempotencyKey="k")

    refused(second, 503, "queue_unavailable")
    refused(other, 422, "idempotency_mismatch")
    assert (await send(api, body="a", idempotencyKey="k")).status_code == 201


@pytest.mark.parametrize(("kind", "error"), [("refusing", QueueUnavailable), ("silent", OutcomeUnknown)])
async def test_timers_of_a_closed_queue_are_retried_and_others_dispatched(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, outage: Outage, clock: ManualClock, kind: str, error: type
) -> None:
    """This includes timers of other topics that are due later. Each message is delivered once."""
    await shop(api, queues=2)
    await put(api, "topics/parcels", queues=1)
    ids = [(await send(api, body=f"{n}", key=key_for(n), delay=5)).json()["id"] for n in (0, 1)]
    await send(api, topic="parcels", body="parcel", delay=6)
    getattr(outage, kind).add(FIRST)
    clock.advance(10)

    with pytest.raises(error):
        await gateway.dispatcher.run_once()
    while_down = (await stored(api), await waiting(api), (await api.get("/v1/topics/parcels/messages")).json()["items"])
    outage.end()
    moved = await gateway.dispatcher.run_once()

    assert while_down[:2] == (["1"], ids[:1])
    assert [item["body"] for item in while_down[2]] == ["parcel"]
    assert moved == 1
    assert sorted(message["id"] for message in await take(api)) == sorted(ids)
    assert await waiting(api) == []


async def test_a_timer_with_an_unknown_outcome_is_sent_again_with_its_id(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, outage: Outage, clock: ManualClock
) -> None:
    """At least once: consumers can recognise a copy by its id, but cannot recover a lost message."""
    await shop(api)
    sent = (await send(api, body="a", delay=5)).json()["id"]
    outage.silent.add(FIRST)
    outage.is_stored = True
    clock.advance(10)
    with pytest.raises(OutcomeUnknown):
        await gateway.dispatcher.run_once()
    outage.end()

    await gateway.dispatcher.run_once()

    assert [message["id"] for message in await take(api)] == [sent, sent]


async def test_many_timers_of_a_closed_queue_do_not_delay_others(
    api: httpx.AsyncClient,
    gateway: bootstrap.Gateway,
    outage: Outage,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are due first and fill every batch. Later timers must be dispatched all the same."""
    monkeypatch.setattr(dispatcher_module, "_BATCH", 2)
    await shop(api, queues=2)
    await batch(api, *({"body": f"{n}", "key": key_for(0), "delay": 5} for n in range(7)))
    await send(api, body="behind", key=key_for(1), delay=6)
    outage.refusing.add(FIRST)
    clock.advance(10)

    with pytest.raises(QueueUnavailable):
        await gateway.dispatcher.run_once()
    while_down = (await stored(api), len(await waiting(api)))
    outage.end()
    await gateway.dispatcher.run_once()

    assert while_down == (["behind"], 7)
    assert bodies(await take(api)) == [*(f"{n}" for n in range(7)), "behind"]


async def test_the_dispatcher_continues_when_the_queue_opens(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """It tries again after its pause, without a restart."""
    outage = Outage(live)
    await shop(live_api, queues=2)
    outage.refusing.add(FIRST)
    for queue in (0, 1):
        await send(live_api, body=f"{queue}", key=key_for(queue), delay=0.05)
    up = await take(live_api, wait=5)
    tries = len(outage.producers)
    await until(lambda: len(outage.producers) > tries)
    outage.end()

    down = await take(live_api, wait=5)

    assert (bodies(up), bodies(down)) == (["1"], ["0"])
    assert await take(live_api, wait=1) == []


async def test_a_redrive_reports_the_outcome_of_every_message(api: httpx.AsyncClient, outage: Outage) -> None:
    """207: a message that was not stored, or may not have been, stays a dead letter. The audit entry has the others."""
    await shop(api, maxAttempts=1)
    await publish(api, "a", "b", "c")
    for message in await take(api):
        await outcome(api, "nack", message)
    ids = await dead_ids(api)
    outage.refusing.add(ids[0])
    outage.silent.add(ids[2])

    response = await api.post("/v1/groups/workers/dead-letters/redrive", json={"ids": [*ids, "nobody"]})
    left = await dead_ids(api)
    audit = (await api.get("/v1/audit")).json()["items"][0]
    outage.end()
    again = await api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True})

    results = response.json()["results"]
    assert response.status_code == 207
    assert [result["id"] for result in results] == [*ids, "nobody"]
    assert [result["outcome"] for result in results] == ["failed", "redriven", "unknown", "not_found"]
    assert left == [ids[0], ids[2]]
    assert (audit["action"], audit["details"]["ids"]) == ("redrive", [ids[1]])
    assert (again.status_code, {result["outcome"] for result in again.json()["results"]}) == (200, {"redriven"})
    assert sorted(message["id"] for message in await take(api)) == sorted(ids)


async def test_a_redrive_into_a_closed_log_changes_nothing(api: httpx.AsyncClient, outage: Outage) -> None:
    """Every result reports the failure, also with a rate, which redrives slice by slice."""
    await shop(api, maxAttempts=1)
    await publish(api, "a", "b", "c")
    for message in await take(api):
        await outcome(api, "nack", message)
    outage.refusing.add(PRIVATE)

    response = await api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True, "rate": 1000})

    assert response.status_code == 207
    assert [result["outcome"] for result in response.json()["results"]] == ["failed"] * 3
    assert len(await dead_ids(api)) == 3
    assert await take(api) == []
