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
    """A route is believed for half a minute, as Java's clients do; nobody wants to wait for that here."""
    monkeypatch.setattr("mqgate.rocketmq.routes._LIFETIME", 0.2)
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._PUBLISH_REFRESH", 0.2)


async def codes(api: httpx.AsyncClient) -> list[tuple[int, str]]:
    """What a message with a key and one without are answered."""
    answers = [
        await api.post("/v1/topics/orders/messages", json={"body": "x", **envelope}) for envelope in ({"key": "k"}, {})
    ]
    return [(answer.status_code, answer.json().get("code", "")) for answer in answers]


async def test_a_topic_made_read_only_takes_no_message_and_delivers_what_it_has(
    api: httpx.AsyncClient, java: Java, rocketmq: Stack
) -> None:
    """Noticed by a gateway that does nothing but publish; and when it may be written again, so it is."""
    await shop(api, queues=2)
    await publish(api, {"body": "before", "key": "k"})

    await java.make_topic("orders", 2, perm=READ_ONLY, cluster="one")
    await until(lambda: _is_refused(api))
    refused = await codes(api)
    await _send_blindly(rocketmq, java.wire("orders"))
    await java.make_topic("orders", 2, cluster="one")
    again = await codes(api)

    assert refused == [(503, "queue_unavailable"), (503, "storage_unavailable")]
    assert again == [(201, ""), (201, "")]
    bodies = {message["body"] for message in await take(api, 100, wait=1)}
    assert {"before", "let in", "x"} <= bodies


async def _send_blindly(stack: Stack, topic: str) -> None:
    """Whoever does not look at the route is let in: a broker that refuses is not why we are refused."""
    client = RocketMQClient([stack.name_server])
    try:
        await client.routes.brokers()
        await client.messages.send("local", topic, 0, b"let in", {"UNIQ_KEY": "1"})
    finally:
        await client.close()


async def _is_refused(api: httpx.AsyncClient) -> bool:
    return (await codes(api))[0][0] == 503


async def test_a_read_only_topic_is_adopted_as_it_is(api: httpx.AsyncClient, java: Java) -> None:
    """Registering it gives no permission that an operator took; and it is known at once, not in half a minute."""
    await java.make_topic("orders", 2, perm=READ_ONLY, cluster="one")

    await put(api, "topics/orders", queues=2)

    assert await codes(api) == [(503, "queue_unavailable"), (503, "storage_unavailable")]


async def test_when_one_broker_is_read_only_messages_without_key_go_to_the_other(
    settings: Settings, java: Java, pair: Stack
) -> None:
    """A broker is emptied before it is taken away; keys stay where they are, and their senders are told to wait."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with serving(settings) as (_, api):
        await shop(api, queues=2)
        keyed = await publish(api, *({"body": "x", "key": f"k{n}"} for n in range(12)))
        by_broker = {each["queue"].partition(":")[0]: f"k{n}" for n, each in enumerate(keyed)}
        address = pair.brokers["broker-a"]

        await java.make_topic("orders", 2, perm=READ_ONLY, address=address)
        there, here = by_broker["broker-a"], by_broker["broker-b"]
        await until(lambda: _is_shut(api, there))
        loose = [await api.post("/v1/topics/orders/messages", json={"body": "y"}) for _ in range(8)]
        answer = await api.post("/v1/topics/orders/messages", json={"body": "z", "key": here})

        assert {each.json()["queue"].partition(":")[0] for each in loose} == {"broker-b"}
        assert answer.status_code == 201
        assert len(await take(api, 21, wait=1)) >= 21


async def _is_shut(api: httpx.AsyncClient, key: str) -> bool:
    answer = await api.post("/v1/topics/orders/messages", json={"body": "z", "key": key})
    return answer.status_code == 503 and answer.json()["code"] == "queue_unavailable"
