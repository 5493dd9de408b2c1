"""Idempotent publish: the rules of semantics.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from message_calls import bodies, put, refused, send, shop, take

from mqgate import bootstrap
from mqgate.core.errors import StorageFull
from mqgate.production.message_writer import MessageWriter
from mqgate.settings import Settings
from mqgate.testing.clock import ManualClock


async def stored(api: httpx.AsyncClient) -> list[str]:
    """Return the bodies of all messages in the topic."""
    answer = await api.get("/v1/topics/orders/messages", params={"from": 0, "limit": 1000})
    return [item["body"] for item in answer.json()["items"]]


@asynccontextmanager
async def opened(settings: Settings, clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield api


async def test_a_repeated_key_and_body_returns_the_first_message(api: httpx.AsyncClient) -> None:
    """The first response is 201. Repeats return 200 `duplicate` with the same content, and store nothing."""
    await shop(api)

    first = await send(api, body="a", idempotencyKey="k1")
    again = await send(api, body="a", idempotencyKey="k1")

    assert (first.status_code, again.status_code) == (201, 200)
    assert "duplicate" not in first.json()
    assert again.json() == {**first.json(), "duplicate": True}
    assert await stored(api) == ["a"]


async def test_the_header_applies_to_raw_bodies_and_envelopes(api: httpx.AsyncClient) -> None:
    """The key is the same in both forms."""
    await shop(api)
    path, header = "/v1/topics/orders/messages", {"Idempotency-Key": "k1"}

    responses = [
        await api.post(path, content=b"a", headers=header),
        await api.post(path, json={"body": "a"}, headers=header),
        await send(api, body="a", idempotencyKey="k1"),
    ]

    assert [answer.status_code for answer in responses] == [201, 200, 200]
    assert len({answer.json()["id"] for answer in responses}) == 1
    assert await stored(api) == ["a"]


async def test_the_header_is_refused_for_a_batch(api: httpx.AsyncClient) -> None:
    """Keys belong to items. If the header were ignored, a repeat would publish twice."""
    await shop(api)

    answer = await api.post(
        "/v1/topics/orders/messages", json={"messages": [{"body": "a"}]}, headers={"Idempotency-Key": "k1"}
    )

    refused(answer, 400, "invalid_value")
    assert await stored(api) == []


async def test_another_body_under_the_key_is_refused(api: httpx.AsyncClient) -> None:
    """The response is 422, nothing is stored, and the first result stays."""
    await shop(api)
    first = await send(api, body="a", idempotencyKey="k1")

    answer = await send(api, body="b", idempotencyKey="k1")

    assert refused(answer, 422, "idempotency_mismatch")["field"] == "idempotencyKey"
    assert (await send(api, body="a", idempotencyKey="k1")).json()["id"] == first.json()["id"]
    assert await stored(api) == ["a"]


async def test_only_the_body_is_compared(api: httpx.AsyncClient) -> None:
    """Key, tag and properties may differ."""
    await shop(api)
    await send(api, body="a", idempotencyKey="k1", key="x", tag="t")

    answer = await send(api, body="a", idempotencyKey="k1", properties={"p": "q"})

    assert answer.json()["duplicate"] is True
    assert await stored(api) == ["a"]


async def test_the_id_is_the_same_even_after_the_window(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """It is derived from topic, key and body, so consumers can recognise the message."""
    await shop(api)
    first = await send(api, body="a", idempotencyKey="k1")
    clock.advance(599.999)
    within = await send(api, body="a", idempotencyKey="k1")
    clock.advance(0.001)

    after = await send(api, body="a", idempotencyKey="k1")

    assert (within.status_code, after.status_code) == (200, 201)
    assert first.json()["id"] == within.json()["id"] == after.json()["id"]
    assert await stored(api) == ["a", "a"]


async def test_ids_differ_if_topic_key_or_body_differ(api: httpx.AsyncClient) -> None:
    """Two different publishes must never share an id."""
    await shop(api)
    await put(api, "topics/others", queues=1)

    responses = [
        await send(api, body="a", idempotencyKey="k1"),
        await send(api, body="a", idempotencyKey="k2"),
        await send(api, body="b", idempotencyKey="k3"),
        await send(api, body="a", idempotencyKey="k1", topic="others"),
        await send(api, body="1a", idempotencyKey="k"),
    ]

    assert [answer.status_code for answer in responses] == [201] * 5
    assert len({answer.json()["id"] for answer in responses}) == 5


async def test_concurrent_repeats_wait_for_the_first(api: httpx.AsyncClient) -> None:
    """Of fifty concurrent requests one stores the message, and the others return its position."""
    await shop(api, queues=8)

    responses = await asyncio.gather(*(send(api, body="a", idempotencyKey="k1") for _ in range(50)))

    assert sorted(answer.status_code for answer in responses) == [200] * 49 + [201]
    assert (
        len({(response.json()["id"], response.json()["queue"], response.json()["offset"]) for response in responses})
        == 1
    )
    assert await stored(api) == ["a"]


async def test_concurrent_batches_that_share_keys_store_each_message_once(api: httpx.AsyncClient) -> None:
    """Their keys are in different orders, so each batch waits for the other. None may wait forever."""
    await shop(api, queues=4)
    items = [{"body": str(number), "idempotencyKey": f"k{number}"} for number in range(20)]

    responses = await asyncio.gather(
        *(
            api.post("/v1/topics/orders/messages", json={"messages": items[turn:] + items[:turn]})
            for turn in range(0, 20, 3)
        )
    )

    assert {answer.status_code for answer in responses} == {200}
    assert sorted(await stored(api), key=int) == [str(number) for number in range(20)]
    firsts = [result for answer in responses for result in answer.json()["results"] if result["status"] == 201]
    assert len(firsts) == 20


async def test_a_key_twice_in_one_batch_is_stored_once(api: httpx.AsyncClient) -> None:
    """The results are first, duplicate and mismatch per item. Items without a key are not affected."""
    await shop(api)
    items = [
        {"body": "a", "idempotencyKey": "k1"},
        {"body": "x"},
        {"body": "a", "idempotencyKey": "k1"},
        {"body": "b", "idempotencyKey": "k1"},
        {"body": "b", "idempotencyKey": "k2"},
    ]

    answer = await api.post("/v1/topics/orders/messages", json={"messages": items})

    results = answer.json()["results"]
    assert answer.status_code == 207
    assert [result["status"] for result in results] == [201, 201, 200, 422, 201]
    assert results[2] == {**results[0], "status": 200, "duplicate": True}
    assert (results[3]["error"]["code"], results[3]["error"]["index"]) == ("idempotency_mismatch", 3)
    assert sorted(await stored(api)) == ["a", "b", "x"]


async def test_keys_survive_a_restart(settings: Settings, clock: ManualClock) -> None:
    """The key and its response are stored, not kept in memory."""
    async with opened(settings, clock) as api:
        await shop(api)
        first = await send(api, body="a", idempotencyKey="k1")

    async with opened(settings, clock) as api:
        again = await send(api, body="a", idempotencyKey="k1")
        other = await send(api, body="b", idempotencyKey="k1")

        assert again.json() == {**first.json(), "duplicate": True}
        assert other.status_code == 422
        assert await stored(api) == ["a"]


@pytest.mark.parametrize("is_stored", [False, True], ids=["before the send", "after the send"])
@pytest.mark.parametrize("delay", [None, "1h"], ids=["now", "later"])
async def test_a_repeat_after_a_crash_stores_one_message(
    settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_stored: bool, delay: str | None
) -> None:
    """The key is recorded before the append, so the repeat checks whether the message is stored."""
    when = {} if delay is None else {"delay": delay}
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
        api = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        await shop(api)
        real = MessageWriter.write

        async def dies(self: Any, *arguments: Any) -> Any:
            if is_stored:
                await real(self, *arguments)
            raise SystemError("power cut")

        monkeypatch.setattr(MessageWriter, "write", dies)
        cut = await send(api, body="a", idempotencyKey="k1", **when)
        monkeypatch.setattr(MessageWriter, "write", real)

    async with opened(settings, clock) as api:
        again = await send(api, body="a", idempotencyKey="k1", **when)
        third = await send(api, body="a", idempotencyKey="k1", **when)

        assert cut.status_code == 500
        assert again.status_code == (200 if is_stored else 201 if delay is None else 202)
        assert third.json() == {**again.json(), "duplicate": True}
        if delay is None:
            assert await stored(api) == ["a"]
        else:
            assert len((await api.get("/v1/scheduled")).json()["items"]) == 1


async def test_a_key_whose_publish_failed_is_free_again(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was stored: a repeat is stored, and another body may use the key."""
    await shop(api)
    log: Any = gateway.dispatcher._log
    real = log.append

    async def full(*_: Any) -> Any:
        raise StorageFull("full")

    monkeypatch.setattr(log, "append", full)
    failed = [await send(api, body="a", idempotencyKey=key) for key in ("k1", "k2")]
    monkeypatch.setattr(log, "append", real)

    assert [answer.status_code for answer in failed] == [507, 507]
    assert (await send(api, body="a", idempotencyKey="k1")).status_code == 201
    assert (await send(api, body="b", idempotencyKey="k2")).status_code == 201


async def test_a_batch_that_was_stored_in_part_is_completed_by_its_repeat(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full after the immediate messages. The repeat adds only the missing delayed ones."""
    await shop(api)
    timers: Any = gateway.dispatcher._timers
    real = timers.add

    async def full(*_: Any) -> Any:
        raise StorageFull("full")

    items = [{"body": "now", "idempotencyKey": "k1"}, {"body": "later", "idempotencyKey": "k2", "delay": "1h"}]
    monkeypatch.setattr(timers, "add", full)
    failed = await api.post("/v1/topics/orders/messages", json={"messages": items})
    monkeypatch.setattr(timers, "add", real)

    repeated = await api.post("/v1/topics/orders/messages", json={"messages": items})

    assert failed.status_code == 507
    assert repeated.status_code == 200
    assert [result["status"] for result in repeated.json()["results"]] == [200, 202]
    assert await stored(api) == ["now"]
    assert len((await api.get("/v1/scheduled")).json()["items"]) == 1


async def test_a_delayed_message_is_scheduled_once_and_delivered_once(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, clock: ManualClock
) -> None:
    """Repeats before and after the due time return the same result."""
    await gateway.dispatcher.stop()
    await shop(api)
    first = await send(api, body="a", idempotencyKey="k1", delay="60s")
    again = await send(api, body="a", idempotencyKey="k1", delay="60s")
    other = await send(api, body="b", idempotencyKey="k1", delay="60s")
    clock.advance(60)
    await gateway.dispatcher.run_once()
    after = await send(api, body="a", idempotencyKey="k1", delay="60s")

    assert (first.status_code, again.status_code, other.status_code, after.status_code) == (202, 200, 422, 200)
    assert again.json() == after.json() == {**first.json(), "duplicate": True}
    assert [message["id"] for message in await take(api)] == [first.json()["id"]]
    assert await gateway.dispatcher.run_once() == 0
    assert bodies(await take(api)) == []


async def test_a_message_that_is_still_scheduled_is_not_scheduled_twice(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, clock: ManualClock
) -> None:
    """Its id is the same after the window. With two timers of one id, a cancel would be ambiguous."""
    await gateway.dispatcher.stop()
    await shop(api)
    first = await send(api, body="a", idempotencyKey="k1", delay="1h")
    clock.advance(601)

    again = await send(api, body="a", idempotencyKey="k1", delay="2h")
    listed = (await api.get("/v1/scheduled")).json()["items"]
    cancelled = await api.delete(f"/v1/scheduled/{first.json()['id']}")
    clock.advance(7200)
    await gateway.dispatcher.run_once()

    assert (again.status_code, again.json()) == (200, {**first.json(), "duplicate": True})
    assert [message["deliverAt"] for message in listed] == [first.json()["deliverAt"]]
    assert cancelled.json()["outcome"] == "cancelled"
    assert bodies(await take(api)) == []


async def test_a_cancelled_message_can_be_scheduled_again(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, clock: ManualClock
) -> None:
    """After the window the key is free, and no timer has its id."""
    await gateway.dispatcher.stop()
    await shop(api)
    first = await send(api, body="a", idempotencyKey="k1", delay="1h")
    await api.delete(f"/v1/scheduled/{first.json()['id']}")
    clock.advance(601)

    again = await send(api, body="a", idempotencyKey="k1", delay="1h")
    clock.advance(3600)
    await gateway.dispatcher.run_once()

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert bodies(await take(api)) == ["a"]


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "\u0001"])
async def test_an_invalid_key_is_refused(api: httpx.AsyncClient, key: str) -> None:
    """The response is 400, and nothing is stored."""
    await shop(api)

    refused(await send(api, idempotencyKey=key), 400, "invalid_value")
    assert await stored(api) == []
