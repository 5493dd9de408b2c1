"""An operator makes a topic read-only, to empty it or a broker: brokers do not check this, so the gateway must."""

from dataclasses import replace

import httpx
import pytest
from interop_calls import publish, put, serving, shop, take, until
from java_client import Java

from mqgate.rocketmq import RocketMQClient
from mqgate.settings import Settings
from mqgate.stack import Stack

READ_ONLY = 4


@pytest.fixture(autouse=True)
def _routes_age_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the cache of routes, which is half a minute, as in the Java clients."""
    monkeypatch.setattr("mqgate.rocketmq.routes._LIFETIME", 0.2)
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._PUBLISH_REFRESH", 0.2)


async def codes(api: httpx.AsyncClient) -> list[tuple[int, str]]:
    """Return the responses to a message with a key and to one without."""
    responses = [
        await api.post("/v1/topics/orders/messages", json={"body": "x", **envelope}) for envelope in ({"key": "k"}, {})
    ]
    return [(response.status_code, response.json().get("code", "")) for response in responses]


async def test_a_read_only_topic_refuses_messages_and_delivers_stored_ones(
    api: httpx.AsyncClient, java: Java, rocketmq: Stack
) -> None:
    """A gateway that only publishes notices it too, and also notices when writes are allowed again."""
    await shop(api, queues=2)
    await publish(api, {"body": "before", "key": "k"})

    await java.create_topic("orders", 2, perm=READ_ONLY, cluster="one")
    await until(lambda: _is_refused(api))
    refused = await codes(api)
    await _send_without_route(rocketmq, java.wire("orders"))
    await java.create_topic("orders", 2, cluster="one")
    again = await codes(api)

    assert refused == [(503, "queue_unavailable"), (503, "storage_unavailable")]
    assert again == [(201, ""), (201, "")]
    bodies = {message["body"] for message in await take(api, 100, wait=1)}
    assert {"before", "let in", "x"} <= bodies


async def _send_without_route(stack: Stack, topic: str) -> None:
    """Send directly: brokers do not enforce the permission, so the refusal is that of the gateway."""
    client = RocketMQClient([stack.name_server])
    try:
        await client.routes.brokers()
        await client.messages.send("local", topic, 0, b"let in", {"UNIQ_KEY": "1"})
    finally:
        await client.close()


async def _is_refused(api: httpx.AsyncClient) -> bool:
    return (await codes(api))[0][0] == 503


async def test_a_read_only_topic_is_adopted_unchanged(api: httpx.AsyncClient, java: Java) -> None:
    """Registering must not restore a permission that an operator removed, and takes effect at once."""
    await java.create_topic("orders", 2, perm=READ_ONLY, cluster="one")

    await put(api, "topics/orders", queues=2)

    assert await codes(api) == [(503, "queue_unavailable"), (503, "storage_unavailable")]


async def test_messages_without_a_key_avoid_a_read_only_broker(settings: Settings, java: Java, pair: Stack) -> None:
    """A broker is drained before it is removed. Keys stay on it, and their senders get a retryable error."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with serving(settings) as (_, api):
        await shop(api, queues=2)
        keyed = await publish(api, *({"body": "x", "key": f"k{n}"} for n in range(12)))
        by_broker = {message["queue"].partition(":")[0]: f"k{n}" for n, message in enumerate(keyed)}
        address = pair.brokers["broker-a"]

        await java.create_topic("orders", 2, perm=READ_ONLY, address=address)
        there, here = by_broker["broker-a"], by_broker["broker-b"]
        await until(lambda: _is_unavailable(api, there))
        loose = [await api.post("/v1/topics/orders/messages", json={"body": "y"}) for _ in range(8)]
        response = await api.post("/v1/topics/orders/messages", json={"body": "z", "key": here})

        assert {response.json()["queue"].partition(":")[0] for response in loose} == {"broker-b"}
        assert response.status_code == 201
        assert len(await take(api, 21, wait=1)) >= 21


async def _is_unavailable(api: httpx.AsyncClient, key: str) -> bool:
    response = await api.post("/v1/topics/orders/messages", json={"body": "z", "key": key})
    return response.status_code == 503 and response.json()["code"] == "queue_unavailable"
