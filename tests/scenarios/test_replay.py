"""Messages of before once more: same ids, for everybody or for one group, each once."""

from typing import Any

import httpx
import pytest
from message_calls import ack, bodies, publish, put, refused, shop, take

Json = dict[str, Any]


@pytest.fixture
async def kept(api: httpx.AsyncClient) -> list[Json]:
    """Two messages of `orders` as a read of its queue tells them; group `workers` has acked both."""
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
    """Whoever de-duplicates by id sees that it is the same message."""
    answer = await replay(api, "topics/orders", *kept)

    assert [result["status"] for result in answer.json()["results"]] == [201, 201]
    again = sorted(await take(api, max=10, wait=5), key=lambda message: message["body"])
    assert [message["id"] for message in again] == [message["id"] for message in kept]
    same = ("key", "tag", "properties", "body", "topic")
    assert [[message[name] for name in same] for message in again] == [
        [message[name] for name in same] for message in kept
    ]
    assert [message["delivery"] for message in again] == [1, 1]


async def test_a_replay_into_a_group_reaches_that_group_only(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Others have done with it; and the one sees when it was first stored."""
    await put(api, "groups/others", topic="orders", start="latest")

    answer = await replay(api, "groups/workers", *kept)

    assert answer.status_code == 200
    again = sorted(await take(api, max=10, wait=5), key=lambda message: message["body"])
    assert [(message["id"], message["storedAt"], message["topic"]) for message in again] == [
        (message["id"], message["storedAt"], message["topic"]) for message in kept
    ]
    places = {(message["queue"], message["offset"]) for message in again}
    assert {(result["queue"], result["offset"]) for result in answer.json()["results"]} == places
    assert await take(api, group="others", max=10) == []


@pytest.mark.parametrize("target", ["topics/orders", "groups/workers"])
async def test_a_replay_that_is_repeated_stores_nothing_again(
    api: httpx.AsyncClient, kept: list[Json], target: str
) -> None:
    """A replay that was cut off is sent once more; its keys are its own, for the same message may be replayed anew."""
    first = [message | {"idempotencyKey": f"monday {message['id']}"} for message in kept]

    answers = [await replay(api, target, *first) for _ in range(2)]

    assert [[result["status"] for result in answer.json()["results"]] for answer in answers] == [[201, 201], [200, 200]]
    assert sorted(bodies(await take(api, max=10, wait=5))) == ["one", "two"]
    anew = await replay(api, target, *(message | {"idempotencyKey": f"tuesday {message['id']}"} for message in kept))
    assert [result["status"] for result in anew.json()["results"]] == [201, 201]


async def test_a_replay_is_on_record(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Who wonders where old messages come from finds out."""
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
async def test_one_bad_message_does_not_fail_the_others(
    api: httpx.AsyncClient, kept: list[Json], target: str, change: Json, field: str
) -> None:
    """As in a batch that is published."""
    answer = await replay(api, target, kept[0] | change, kept[1])

    assert answer.status_code == 207
    bad, good = answer.json()["results"]
    assert (bad["status"], bad["error"]["field"], good["status"]) == (400, field, 201)
    assert bodies(await take(api, max=10, wait=5)) == ["two"]


async def test_what_cannot_be_replayed_is_refused(api: httpx.AsyncClient, kept: list[Json]) -> None:
    """Nothing, nowhere, and to clients of whom each would get it."""
    await put(api, "groups/all", topic="orders", mode="broadcast")

    refused(await replay(api, "topics/orders"), 400, "invalid_value")
    refused(await replay(api, "topics/nowhere", *kept), 404, "topic_not_found")
    refused(await replay(api, "groups/nobody", *kept), 404, "group_not_found")
    refused(await replay(api, "groups/all", *kept), 400, "unsupported_by_mode")
