"""Registering a topic adopts its messages, and deleting it drops them first, whatever happens in between."""

import asyncio
from typing import Any

import httpx
import pytest
from message_calls import bodies, put, refused, send, take

from mqgate import bootstrap
from mqgate.core.errors import StorageUnavailable
from mqgate.ports.registry_store import AuditEntry
from mqgate.testing.clock import NOON, ManualClock
from mqgate.testing.samples import a_draft, a_group, a_topic

MESSAGES = "/v1/topics/orders/messages"


@pytest.fixture
def log(gateway: bootstrap.Gateway) -> Any:
    return gateway.registry._log


async def test_an_existing_topic_is_adopted_with_its_messages(api: httpx.AsyncClient, log: Any) -> None:
    """Another system may have created it on a broker. Registering it must never delete messages."""
    await log.create("orders", 2)
    await log.append("orders", [a_draft("theirs")])

    response = await api.put("/v1/topics/orders", json={"queues": 2})
    await put(api, "groups/workers", topic="orders")

    assert response.status_code == 201
    assert bodies(await take(api)) == ["theirs"]


@pytest.mark.parametrize("then", ["delete", "put"])
async def test_an_interrupted_deletion_is_completed_by_its_repeat(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, then: str
) -> None:
    """The entry outlives the messages. If the topic is registered again instead, it is empty."""
    await put(api, "topics/orders", queues=1)
    await send(api, body="old", idempotencyKey="k")
    await send(api, body="late", delay=60)

    async def dies(*_: Any, **__: Any) -> None:
        raise StorageUnavailable("the gateway is stopping")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.registry._store, "remove", dies)
        cut = await api.delete("/v1/topics/orders")
    entry = await api.get("/v1/topics/orders")
    in_between = await send(api, body="lost?")
    if then == "delete":
        assert (await api.delete("/v1/topics/orders")).status_code == 204
        refused(await api.get("/v1/topics/orders"), 404, "topic_not_found")
    await put(api, "topics/orders", queues=1)
    again = await send(api, body="old", idempotencyKey="k")
    clock.advance(120)
    await gateway.dispatcher.run_once()

    assert (cut.status_code, entry.status_code) == (503, 200)
    refused(in_between, 404, "topic_not_found")
    assert again.status_code == 201
    assert [item["body"] for item in (await api.get(MESSAGES)).json()["items"]] == ["old"]


async def test_a_publish_during_a_deletion_leaves_nothing_in_the_next_topic(
    api: httpx.AsyncClient,
) -> None:
    """Each message is stored and dropped, or refused. Then every key is free and the new topic is empty."""
    await put(api, "topics/orders", queues=4)

    async def publish(number: int) -> int:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        return (await send(api, body=f"{number}", idempotencyKey=f"k{number}")).status_code

    deleted, *responses = await asyncio.gather(api.delete("/v1/topics/orders"), *(publish(n) for n in range(60)))
    await put(api, "topics/orders", queues=4)
    empty = (await api.get(MESSAGES)).json()["items"]
    again = [await send(api, body=f"{number}", idempotencyKey=f"k{number}") for number in range(60)]

    assert deleted.status_code == 204
    assert set(responses) <= {201, 404}
    assert empty == []
    assert {response.status_code for response in again} == {201}


def an_audit_entry(subject: str) -> AuditEntry:
    return AuditEntry(at=NOON, actor="another gateway", action="create", subject=subject, reason=None, details="{}")


async def test_a_concurrent_change_does_not_interrupt_a_deletion(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    """The messages are dropped already, so a refusal at this point would leave half a change."""
    await put(api, "topics/orders", queues=1)
    store: Any = gateway.registry._store
    drop = log.drop

    async def slow(topic: str) -> None:
        await drop(topic)
        await store.save(a_topic(name="parcels"), an_audit_entry("topic parcels"), decided_on=await store.version())

    monkeypatch.setattr(log, "drop", slow)
    response = await api.delete("/v1/topics/orders")

    assert response.status_code == 204
    assert [item["name"] for item in (await api.get("/v1/topics")).json()["items"]] == ["parcels"]


async def test_a_topic_with_a_group_that_was_registered_meanwhile_is_kept(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    """A group must not lose its topic. Registering the topic again creates its queues again."""
    await put(api, "topics/orders", queues=1)
    store: Any = gateway.registry._store
    drop = log.drop

    async def slow(topic: str) -> None:
        await drop(topic)
        await store.save(a_group(name="workers"), an_audit_entry("group workers"), decided_on=await store.version())

    monkeypatch.setattr(log, "drop", slow)
    response = await api.delete("/v1/topics/orders")
    await put(api, "topics/orders", queues=1)

    refused(response, 409, "topic_in_use")
    assert (await send(api, body="a")).status_code == 201
    assert bodies(await take(api)) == ["a"]
