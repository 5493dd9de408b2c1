"""Two gateways share one registry: a change at one applies at the other."""

import asyncio
import base64
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest
from message_calls import bodies, outcome, parked, publish, put, receive, send, settle, shop, take, two_leased
from sides import Side, on_rocketmq, opened

from mqgate.settings import HttpSettings, Settings

LONG = 20
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


async def execute(shared: Settings, sql: str) -> None:
    """Change control data directly in the database, without a notification."""
    async with await psycopg.AsyncConnection.connect(shared.postgres.url, autocommit=True) as connection:
        await connection.execute(f'SET search_path TO "{shared.postgres.schema}"'.encode())
        await connection.execute(sql.encode())


async def eventually(api: httpx.AsyncClient, path: str, member: str, value: object) -> float:
    """Return the seconds until an entry has a value."""
    began = time.monotonic()
    while (await api.get(path)).json().get(member) != value:
        assert time.monotonic() < began + 30
        await asyncio.sleep(0.005)
    return time.monotonic() - began


@on_rocketmq
async def test_an_entry_is_available_at_the_other_gateway_at_once(both: tuple[Side, Side]) -> None:
    """After the response of a PUT, the next request goes elsewhere and must not get a 404."""
    a, b = both[0].api, both[1].api

    for turn in range(5):
        await put(a, f"topics/t{turn}", queues=2)
        await put(a, f"producers/p{turn}", topic=f"t{turn}")
        published = await b.post(f"/v1/topics/t{turn}/messages?producer=p{turn}", json={"body": "x"})
        await put(b, f"groups/g{turn}", topic=f"t{turn}")
        messages = await take(a, f"g{turn}", wait=LONG)

        assert published.status_code == 201, published.text
        assert bodies(messages) == ["x"]


@on_sqlite
async def test_a_missing_entry_is_not_found(both: tuple[Side, Side]) -> None:
    """The registry is reloaded first, and many such requests share a few queries."""
    _, b = both
    asked = 0
    refresh = b.gateway.follower._sources[0]

    async def counted() -> object:
        nonlocal asked
        asked += 1
        return await refresh()

    b.gateway.follower._sources = (counted,)
    responses = await asyncio.gather(*(send(b.api, f"none{turn}") for turn in range(200)))

    assert {response.json()["code"] for response in responses} == {"topic_not_found"}
    assert asked <= 3


@on_sqlite
async def test_a_changed_setting_applies_at_the_other_gateway_within_a_second(both: tuple[Side, Side]) -> None:
    """No request misses an entry that exists, so a notification must report the change."""
    a, b = both[0].api, both[1].api
    await put(a, "topics/orders", queues=1)
    await put(a, "groups/workers", topic="orders", maxAttempts=3)
    await eventually(b, "/v1/groups/workers", "maxAttempts", 3)

    await put(a, "groups/workers", maxAttempts=7)

    # The slow poll alone would take five seconds, once in a while more than four.
    assert max([await _seconds_until_changed(a, b, attempts) for attempts in range(10, 20)]) < 1


async def _seconds_until_changed(a: httpx.AsyncClient, b: httpx.AsyncClient, attempts: int) -> float:
    await put(a, "groups/workers", maxAttempts=attempts)
    return await eventually(b, "/v1/groups/workers", "maxAttempts", attempts)


@on_sqlite
async def test_an_api_key_applies_at_both_gateways(shared: Settings, tmp_path: Path) -> None:
    """A key created at one is accepted by the other at once, and a key deleted there is refused here."""
    async with opened(shared, tmp_path / "a") as a, opened(shared, tmp_path / "b") as b:
        admin = (await a.api.post("/v1/keys", json={"role": "admin"})).json()
        badge = {"authorization": f"Bearer {admin['key']}"}
        first = await b.api.get("/v1/keys", headers=badge)
        made = (await a.api.post("/v1/keys", json={"role": "admin"}, headers=badge)).json()
        second = {"authorization": f"Bearer {made['key']}"}
        opened_at_once = await b.api.get("/v1/keys", headers=second)

        await a.api.delete(f"/v1/keys/{made['id']}", headers=badge)

        began = time.monotonic()
        while (await b.api.get("/v1/keys", headers=second)).status_code == 200:
            assert time.monotonic() < began + 30
            await asyncio.sleep(0.005)
        assert (first.status_code, opened_at_once.status_code) == (200, 200)
        assert (await b.api.get("/v1/keys", headers=second)).status_code == 401
        assert time.monotonic() - began < 1


@on_rocketmq
async def test_a_resume_wakes_a_receive_at_the_other_gateway(both: tuple[Side, Side]) -> None:
    """Long before its wait is over, without polling."""
    a, b = both
    await shop(a.api)
    await publish(a.api, "ready")
    await a.api.post("/v1/groups/workers/pause", json={})
    await eventually(b.api, "/v1/groups/workers", "paused", value=True)
    waiting = asyncio.create_task(receive(b.api, wait=LONG))
    await parked(b.gateway, 1)

    began = time.monotonic()
    await a.api.post("/v1/groups/workers/resume", json={})
    received = await waiting

    assert bodies(received["messages"]) == ["ready"]
    assert time.monotonic() - began < LONG / 4


@on_rocketmq
async def test_a_released_queue_wakes_a_receive_at_the_other_gateway(both: tuple[Side, Side]) -> None:
    """Carried acks release two queues and their receive takes one. The other needs no polling of Redis."""
    a, b = both
    held = await two_leased(a.api)
    waiting = asyncio.create_task(receive(b.api, wait=LONG, max=1))
    await parked(b.gateway, 1)

    began = time.monotonic()
    await receive(a.api, max=1, ack=held)
    received = await waiting

    assert received["messages"]
    assert time.monotonic() - began < LONG / 4


@on_rocketmq
async def test_deleting_a_group_ends_its_receives_at_the_other_gateway(both: tuple[Side, Side]) -> None:
    """They must not wait for nothing."""
    a, b = both
    await shop(a.api)
    waiting = asyncio.create_task(b.api.post("/v1/groups/workers/receive", json={"wait": LONG}))
    await parked(b.gateway, 1)

    began = time.monotonic()
    await a.api.delete("/v1/groups/workers")
    response = await waiting

    assert (response.status_code, response.json()["code"]) == (404, "group_not_found")
    assert time.monotonic() - began < LONG / 4


async def _queues_of_keys(api: httpx.AsyncClient) -> list[str]:
    responses = [await send(api, key=f"key {number}") for number in range(24)]
    return [response.json()["queue"] for response in responses]


@on_rocketmq
async def test_a_key_selects_the_same_queue_at_both_after_a_topic_has_grown(both: tuple[Side, Side]) -> None:
    """Otherwise messages of a key would be in two queues and out of order."""
    a, b = both[0].api, both[1].api
    await put(a, "topics/orders", queues=2)
    before = [await _queues_of_keys(a), await _queues_of_keys(b)]

    await put(a, "topics/orders", queues=8)
    await eventually(b, "/v1/topics/orders", "queues", 8)
    after = [await _queues_of_keys(a), await _queues_of_keys(b)]

    assert before[0] == before[1]
    assert after[0] == after[1]
    assert len(set(after[0])) > 2


@on_rocketmq
async def test_a_topic_created_again_at_one_gateway_is_new_at_the_other(both: tuple[Side, Side]) -> None:
    """It has its own, fewer queues and none of the old messages."""
    a, b = both[0].api, both[1].api
    await put(a, "topics/orders", queues=8)
    await publish(b, *range(20))

    await a.delete("/v1/topics/orders")
    gone = await send(b)
    await put(a, "topics/orders", queues=2)
    stored = await _queues_of_keys(b)
    await put(b, "groups/workers", topic="orders")
    messages = await take(b, max=100, wait=LONG)

    assert (gone.status_code, gone.json()["code"]) == (404, "topic_not_found")
    assert len(set(stored)) <= 2
    assert stored == await _queues_of_keys(a)
    assert set(bodies(messages)) == {"hello"}


@on_rocketmq
async def test_receipts_are_accepted_by_both_gateways_during_key_rotation(
    both: tuple[Side, Side], shared: Settings
) -> None:
    """Before a rotation, right after it and after the new key signs, also without a notification."""
    a, b = both
    await shop(a.api)
    await publish(a.api, *range(8))
    messages = await take(a.api, max=2)

    await execute(shared, "UPDATE receipt_key SET created_at = created_at - interval '31 days'")
    await a.gateway.follower.refresh()
    messages += await take(a.api, max=2)
    await execute(shared, "UPDATE receipt_key SET created_at = created_at - interval '6 minutes'")
    await a.gateway.follower.refresh()
    messages += await take(a.api, max=2)
    await execute(
        shared,
        "INSERT INTO receipt_key (secret, created_at) "
        "VALUES (decode(repeat('ab', 32), 'hex'), clock_timestamp() - interval '6 minutes')",
    )
    await a.gateway.follower.refresh()
    messages += await take(a.api, max=2)

    numbers = [base64.urlsafe_b64decode(message["receipt"][:4])[:2] for message in messages]
    assert len(set(numbers)) == 3
    assert [await outcome(b.api, "ack", message) for message in reversed(messages)] == [(200, "applied")] * 8
    forged = await settle(b.api, "ack", "AAAA" + messages[0]["receipt"][4:])
    assert (forged.status_code, forged.json()["code"]) == (400, "invalid_receipt")


@on_rocketmq
async def test_a_message_scheduled_at_one_gateway_is_dispatched_by_the_other(shared: Settings, tmp_path: Path) -> None:
    """A gateway may stop before its timers are due."""
    async with opened(shared, tmp_path / "b") as b:
        async with opened(shared, tmp_path / "a") as a:
            await shop(a.api)
            scheduled = (await send(a.api, body="later", delay="1s")).json()

        messages = await take(b.api, wait=LONG)

    assert [(message["id"], message["body"]) for message in messages] == [(scheduled["id"], "later")]


@on_rocketmq
async def test_an_idempotency_key_applies_at_both_gateways(both: tuple[Side, Side]) -> None:
    """Also for concurrent requests: one message, one id."""
    a, b = both[0].api, both[1].api
    await shop(a)

    responses = await asyncio.gather(*(send(api, idempotencyKey="once") for api in (a, b) * 5))
    again = (await send(b, idempotencyKey="once")).json()

    found = [response.json() for response in responses]
    assert {message["id"] for message in found} == {again["id"]}
    assert sorted(bool(result.get("duplicate")) for result in found) == [False] + [True] * 9
    assert len(await take(a, max=10, wait=LONG)) == 1
    assert await take(a, max=10) == []


@on_rocketmq
async def test_the_same_concurrent_change_is_applied_once(both: tuple[Side, Side]) -> None:
    """Deployments configure every gateway alike."""
    a, b = both[0].api, both[1].api

    topics = await asyncio.gather(*(api.put("/v1/topics/orders", json={"queues": 2}) for api in (a, b) * 3))
    groups = await asyncio.gather(*(api.put("/v1/groups/workers", json={"topic": "orders"}) for api in (a, b) * 3))

    assert sorted(response.status_code for response in topics) == [200] * 5 + [201]
    assert sorted(response.status_code for response in groups) == [200] * 5 + [201]
    await publish(a, "x")
    assert bodies(await take(b, wait=LONG)) == ["x"]


@on_rocketmq
async def test_gateways_that_start_together_declare_the_same_entries(shared: Settings, tmp_path: Path) -> None:
    """None of them refuses to start because another was faster."""
    declared = replace(
        shared,
        topic=tuple({"name": f"t{number}", "queues": 1} for number in range(3)),
        producer=tuple({"name": f"p{number}", "topic": f"t{number}"} for number in range(3)),
        group=tuple({"name": f"g{number}", "topic": f"t{number}"} for number in range(3)),
        http=HttpSettings(),
    )
    async with AsyncExitStack() as stack:
        sides = await asyncio.gather(
            *(stack.enter_async_context(opened(declared, tmp_path / name)) for name in ("a", "b", "c"))
        )

        await publish(sides[0].api, "x", topic="t2")

        assert bodies(await take(sides[2].api, "g2", wait=LONG)) == ["x"]
        acts = (await sides[1].api.get("/v1/audit", params={"limit": 100})).json()["items"]
        assert len(acts) == 9
