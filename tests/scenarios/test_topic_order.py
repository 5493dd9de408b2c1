"""Registering a topic adopts its messages, deleting it drops them first: whatever happens in between."""

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


async def test_a_topic_that_is_there_already_is_adopted_with_its_messages(api: httpx.AsyncClient, log: Any) -> None:
    """On a broker somebody else may have made it: registering must never delete what others stored."""
    await log.create("orders", 2)
    await log.append("orders", [a_draft("theirs")])

    answer = await api.put("/v1/topics/orders", json={"queues": 2})
    await put(api, "groups/workers", topic="orders")

    assert answer.status_code == 201
    assert bodies(await take(api)) == ["theirs"]


@pytest.mark.parametrize("then", ["delete", "put"])
async def test_a_deletion_that_was_cut_off_is_finished_by_its_repeat_or_undone_empty(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, then: str
) -> None:
    """The entry outlives the messages, never the other way round; nothing of them comes up again."""
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
    await gateway.mover.run_once()

    assert (cut.status_code, entry.status_code) == (503, 200)
    refused(in_between, 404, "topic_not_found")
    assert again.status_code == 201
    assert [item["body"] for item in (await api.get(MESSAGES)).json()["items"]] == ["old"]


async def test_whoever_publishes_while_a_topic_is_deleted_leaves_nothing_to_its_successor(
    api: httpx.AsyncClient,
) -> None:
    """Each is stored and dropped, or refused; then every key is free and the new topic is empty."""
    await put(api, "topics/orders", queues=4)

    async def publish(number: int) -> int:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        return (await send(api, body=f"{number}", idempotencyKey=f"k{number}")).status_code

    deleted, *answers = await asyncio.gather(api.delete("/v1/topics/orders"), *(publish(n) for n in range(60)))
    await put(api, "topics/orders", queues=4)
    empty = (await api.get(MESSAGES)).json()["items"]
    again = [await send(api, body=f"{number}", idempotencyKey=f"k{number}") for number in range(60)]

    assert deleted.status_code == 204
    assert set(answers) <= {201, 404}
    assert empty == []
    assert {answer.status_code for answer in again} == {201}


def an_act(subject: str) -> AuditEntry:
    return AuditEntry(at=NOON, actor="another gateway", action="create", subject=subject, reason=None, details="{}")


async def test_a_change_by_another_gateway_meanwhile_does_not_leave_a_deletion_half_done(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    """The messages are dropped already: to refuse then would be a refusal that changed something."""
    await put(api, "topics/orders", queues=1)
    store: Any = gateway.registry._store
    drop = log.drop

    async def slow(topic: str) -> None:
        await drop(topic)
        await store.save(a_topic(name="parcels"), an_act("topic parcels"), decided_on=await store.version())

    monkeypatch.setattr(log, "drop", slow)
    answer = await api.delete("/v1/topics/orders")

    assert answer.status_code == 204
    assert [item["name"] for item in (await api.get("/v1/topics")).json()["items"]] == ["parcels"]


async def test_a_group_that_another_gateway_registers_meanwhile_keeps_its_topic(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    """An entry must not lose the one that it stands on; putting the topic again makes its queues anew."""
    await put(api, "topics/orders", queues=1)
    store: Any = gateway.registry._store
    drop = log.drop

    async def slow(topic: str) -> None:
        await drop(topic)
        await store.save(a_group(name="workers"), an_act("group workers"), decided_on=await store.version())

    monkeypatch.setattr(log, "drop", slow)
    answer = await api.delete("/v1/topics/orders")
    await put(api, "topics/orders", queues=1)

    refused(answer, 409, "topic_in_use")
    assert (await send(api, body="a")).status_code == 201
    assert bodies(await take(api)) == ["a"]
