"""Replay: old messages with their ids, to a topic or to one group, each once."""

from typing import Any

import httpx
import pytest
from message_calls import ack, bodies, publish, put, refused, shop, take

Json = dict[str, Any]


@pytest.fixture
async def kept(api: httpx.AsyncClient) -> list[Json]:
    """Two messages of `orders` as read from its queue. Group `workers` has acked both."""
    await shop(api)
    await publish(api, "one", key="k", tag="t", properties={"a": "1"})
    await publish(api, "two")
    await ack(api, *await take(api, max=10, wait=5))
    queues = (await api.get("/v1/topics/orders/queues")).json()["items"]
    found = []
    for queue in queues:
        path = f"/v1/topics/orders/queues/{queue['queue']}/messages"
        found += (await api.get(path, params={"offset": queue["min"]})).json()["messages"]
    return sorted(found, key=lambda message: message["body"])


async def replay(api: httpx.AsyncClient, target: str, *messages: Json) -> httpx.Response:
    return await api.post(f"/v1/{target}/replay", json={"messages": list(messages)})


async def test_a_replay_into_a_topic_keeps_ids_and_contents(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Consumers that deduplicate by id recognise the message."""
    response = await replay(api, "topics/orders", *kept)

    assert [result["status"] for result in response.json()["results"]] == [201, 201]
    again = sorted(await take(api, max=10, wait=5), key=lambda message: message["body"])
    assert [message["id"] for message in again] == [message["id"] for message in kept]
    same = ("key", "tag", "properties", "body", "topic")
    assert [[message[name] for name in same] for message in again] == [
        [message[name] for name in same] for message in kept
    ]
    assert [message["delivery"] for message in again] == [1, 1]


async def test_a_replay_into_a_group_reaches_that_group_only(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Other groups do not receive it again, and this one sees the original store time."""
    await put(api, "groups/others", topic="orders", start="latest")

    response = await replay(api, "groups/workers", *kept)

    assert response.status_code == 200
    again = sorted(await take(api, max=10, wait=5), key=lambda message: message["body"])
    assert [(message["id"], message["storedAt"], message["topic"]) for message in again] == [
        (message["id"], message["storedAt"], message["topic"]) for message in kept
    ]
    places = {(message["queue"], message["offset"]) for message in again}
    assert {(result["queue"], result["offset"]) for result in response.json()["results"]} == places
    assert await take(api, group="others", max=10) == []


@pytest.mark.parametrize("target", ["topics/orders", "groups/workers"])
async def test_a_repeated_replay_stores_nothing(api: httpx.AsyncClient, kept: list[Json], target: str) -> None:
    """An interrupted replay is repeated with the same keys. A new replay of the message has other keys."""
    first = [message | {"idempotencyKey": f"monday {message['id']}"} for message in kept]

    responses = [await replay(api, target, *first) for _ in range(2)]

    assert [[result["status"] for result in response.json()["results"]] for response in responses] == [
        [201, 201],
        [200, 200],
    ]
    assert sorted(bodies(await take(api, max=10, wait=5))) == ["one", "two"]
    another = await replay(api, target, *(message | {"idempotencyKey": f"tuesday {message['id']}"} for message in kept))
    assert [result["status"] for result in another.json()["results"]] == [201, 201]


async def test_a_replay_has_an_audit_entry(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Operators must be able to find out where old messages come from."""
    await replay(api, "groups/workers", *kept)

    acts = (await api.get("/v1/audit")).json()["items"]
    assert (acts[0]["action"], acts[0]["subject"], acts[0]["details"]) == ("replay", "group workers", {"messages": 2})


@pytest.mark.parametrize(
    ("target", "change", "field"),
    [
        ("topics/orders", {"id": ""}, "id"),
        ("topics/orders", {"id": "x" * 129}, "id"),
        ("topics/orders", {"body": ""}, "body"),
        ("topics/orders", {"delay": 1}, "delay"),
        ("groups/workers", {"queue": None}, "queue"),
        ("groups/workers", {"storedAt": None}, "storedAt"),
        ("groups/workers", {"storedAt": "yesterday"}, "storedAt"),
    ],
)
async def test_an_invalid_message_does_not_fail_the_others(
    api: httpx.AsyncClient, kept: list[Json], target: str, change: Json, field: str
) -> None:
    """The rule is that of a batch publish."""
    response = await replay(api, target, kept[0] | change, kept[1])

    assert response.status_code == 207
    bad, good = response.json()["results"]
    assert (bad["status"], bad["error"]["field"], good["status"]) == (400, field, 201)
    assert bodies(await take(api, max=10, wait=5)) == ["two"]


async def test_an_invalid_replay_is_refused(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Without messages, to an unknown target, and to a broadcast group, whose clients would all receive it."""
    await put(api, "groups/all", topic="orders", mode="broadcast")

    refused(await replay(api, "topics/orders"), 400, "invalid_value")
    refused(await replay(api, "topics/nowhere", *kept), 404, "topic_not_found")
    refused(await replay(api, "groups/nobody", *kept), 404, "group_not_found")
    refused(await replay(api, "groups/all", *kept), 400, "unsupported_by_mode")
