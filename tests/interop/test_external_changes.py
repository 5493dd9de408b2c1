"""An operator changes a topic with RocketMQ's own tool while the gateway runs."""

import asyncio

import httpx
import pytest
from interop_calls import Json, lag, publish, put, receive, shop, take
from java_client import Java

from mqgate import bootstrap


async def test_messages_of_an_added_queue_are_delivered(api: httpx.AsyncClient, java: Java) -> None:
    """The gateway finds the queue in the statistics of the broker, and wakes parked receives."""
    await shop(api, queues=2)
    await publish(api, {"body": "old"})
    await take(api, 1)

    await java.create_topic("orders", 4, cluster="one")
    (sent,) = await java.send("orders", {"body": "new"}, queue=3)
    (message,) = await take(api, 1)

    assert (message["id"], message["queue"]) == (sent["id"], "local:3")
    assert {queue["queue"] for queue in (await lag(api))["queues"]} == {f"local:{n}" for n in range(4)}


async def test_keys_keep_their_queues_when_others_are_added(api: httpx.AsyncClient, java: Java) -> None:
    """Keys move only when the topic is registered with more queues."""
    await shop(api, queues=2)
    envelopes = [{"body": "x", "key": f"k{n}"} for n in range(8)]
    before = await publish(api, *envelopes)

    await java.create_topic("orders", 4, cluster="one")
    await take(api, 8)
    after = await publish(api, *envelopes)

    assert [message["queue"] for message in before] == [message["queue"] for message in after]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_recreated_topic_is_delivered_from_its_beginning(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """Its queues start at 0 again, before the committed offset. The group must not wait for offset 10."""
    await shop(api, mode=mode)
    await java.send("orders", *({"body": f"old {n}"} for n in range(10)))
    await take(api, 10)
    waiting = asyncio.ensure_future(receive(api, wait=60))

    await java.drop_topic("orders", "one")
    await java.create_topic("orders", 1, cluster="one")
    sent = await java.send("orders", *({"body": f"new {n}"} for n in range(3)), queue=0)
    response = await asyncio.wait_for(waiting, 30)
    messages = [*response["messages"], *await take(api, 3 - len(response["messages"]))]
    standing = await lag(api)

    assert response["rewound"] == 10
    assert [message["id"] for message in messages] == [message["id"] for message in sent]
    assert (standing["ready"], standing["queues"][0]["max"]) == (0, 3)


async def test_a_deleted_topic_accepts_messages_after_it_is_registered_again(
    api: httpx.AsyncClient, java: Java
) -> None:
    """Until then the error names the remedy, and no message is stored where it cannot be found."""
    await shop(api, queues=2)
    await publish(api, {"body": "lost"})

    await java.drop_topic("orders", "one")
    refused = [await _send(api, **envelope) for envelope in ({}, {"key": "k"})]
    await put(api, "topics/orders", queues=2)
    (published,) = await publish(api, {"body": "kept"})
    (message,) = await take(api, 1)

    assert [(status, problem["code"]) for status, problem in refused] == [(404, "topic_not_found")] * 2
    assert (message["id"], message["body"]) == (published["id"], "kept")


async def _send(api: httpx.AsyncClient, **envelope: str) -> tuple[int, Json]:
    response = await api.post("/v1/topics/orders/messages", json={"body": "x", **envelope})
    return response.status_code, response.json()
