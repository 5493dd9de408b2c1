"""Refusals of brokers: the HTTP client gets a clear error, or another broker is used, and never a 500."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fault_calls import BROKERS, QUEUES, Gateway, eventually, key_for, opened, problem

from mqgate.core.names import MAX_PROPERTY_BYTES
from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.admin import LAYOUTS
from mqgate.settings import Settings

MIB = 1 << 20
UPDATE_BROKER_CONFIG, DELETE_TOPIC_IN_BROKER = 25, 215
SYSTEM_ERROR = 1
READ_ONLY, READ_AND_WRITE = 4, 6


@pytest.mark.parametrize("is_layout_kept", [False, True], ids=["mqadmin", "dashboard"])
async def test_a_topic_deleted_by_another_tool_is_not_found(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str], is_layout_kept: bool
) -> None:
    """The tools of RocketMQ leave different things behind. A topic created again is empty, and so are its groups."""
    await gateway.shop()
    for number in range(40):
        await gateway.stored(body=str(number))
    assert len(await gateway.drain(wait=0)) == 40

    await remove_topic(direct, wire("orders"), *BROKERS)
    await direct.admin.delete_topic(wire("orders"), brokers=[])
    if not is_layout_kept:
        await direct.admin.delete_kv(LAYOUTS, wire("orders"))

    async def is_told() -> bool:
        response = await gateway.api.post("/v1/groups/workers/receive", json={})
        return problem(response) == (404, "topic_not_found") if response.status_code != 200 else False

    assert problem(await gateway.publish()) == (404, "topic_not_found")
    assert problem(await gateway.publish(key=key_for("broker-b"))) == (404, "topic_not_found")
    await eventually(is_told, 5)
    await gateway.put("topics/orders", queues=QUEUES * len(BROKERS))
    again = await gateway.stored(body="again", key="k")
    assert again["offset"] == 0
    assert [message["body"] for message in await gateway.drain()] == ["again"]


async def remove_topic(direct: RocketMQClient, topic: str, *brokers: str) -> None:
    """Delete a topic. Brokers without timers fail after the deletion, when they count its timers."""
    for broker in brokers:
        await direct.brokers.call(broker, DELETE_TOPIC_IN_BROKER, {"topic": topic}, allowed=(SYSTEM_ERROR,))


async def test_a_broker_that_lost_a_topic_does_not_affect_the_other(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str]
) -> None:
    """A broker was set up again. The topic is not treated as deleted."""
    await gateway.shop()
    await remove_topic(direct, wire("orders"), "broker-a")

    stored = [await gateway.stored(body=str(number)) for number in range(4)]

    assert {message["queue"].partition(":")[0] for message in stored} == {"broker-b"}
    assert problem(await gateway.publish(key=key_for("broker-a"))) == (503, "queue_unavailable")
    assert len(await gateway.drain(wait=0)) == 4
    await gateway.put("topics/orders", queues=QUEUES * len(BROKERS))
    assert (await gateway.stored(key=key_for("broker-a")))["queue"] == "broker-a:0"


async def test_a_read_only_broker_gets_no_messages(gateway: Gateway, direct: RocketMQClient) -> None:
    """brokerPermission=4, as operators set it before they remove a broker. Its keys get an error."""
    await gateway.shop()
    key = key_for("broker-b")
    await set_permission(direct, "broker-b", READ_ONLY)
    try:
        stored = [await gateway.stored(body=str(number)) for number in range(8)]
        keyed = await gateway.publish(key=key)
    finally:
        await set_permission(direct, "broker-b", READ_AND_WRITE)

    assert {message["queue"].partition(":")[0] for message in stored} == {"broker-a"}
    # Whether the broker says so or the route does, depends on which we hear first.
    assert problem(keyed) in {(502, "storage_refused"), (503, "queue_unavailable")}

    async def is_taken() -> bool:
        return (await gateway.publish(key=key)).status_code == 201

    await eventually(is_taken, 5)


async def set_permission(direct: RocketMQClient, broker: str, permission: int) -> None:
    await direct.brokers.call(broker, UPDATE_BROKER_CONFIG, {}, f"brokerPermission={permission}\n".encode())


async def test_a_message_above_the_limit_of_the_brokers_is_refused(
    settings: Settings,
) -> None:
    """The limit of the gateway may be higher. The largest accepted message is stored."""
    async with opened(replace(settings, http=replace(settings.http, max_message_bytes=8 * MIB))) as gateway:
        await gateway.shop()

        await gateway.stored(body="x" * 4 * MIB)
        refused = await gateway.publish(body="x" * 5 * MIB)
        batch = await gateway.api.post(
            "/v1/topics/orders/messages", json={"messages": [{"body": "x" * 3 * MIB}, {"body": "y" * 2 * MIB}]}
        )

        assert problem(refused) == (400, "invalid_value")
        assert refused.json()["field"] == "body"
        assert batch.status_code == 200, batch.text
        assert sorted(len(message["body"]) for message in await gateway.drain(wait=0)) == [2 * MIB, 3 * MIB, 4 * MIB]


async def test_an_empty_body_never_reaches_a_broker(gateway: Gateway) -> None:
    """The broker would fail with a NullPointerException."""
    await gateway.shop()

    empty = await gateway.publish(body="")
    bare = await gateway.api.post("/v1/topics/orders/messages", content=b"")

    assert problem(empty) == problem(bare) == (400, "empty_body")


@pytest.mark.parametrize("count", [1, 1_000])
async def test_accepted_properties_can_be_stored(gateway: Gateway, count: int) -> None:
    """Brokers store 32,767 bytes, including the id, the key, escaped names and what the broker adds."""
    await gateway.shop(maxAttempts=1)
    taken = ("KEYS", "TAGS", "DELAY", "WAIT", "UNIQ_KEY", "TIMER_DELAY_MS", "MSG_REGION", "POP_CK")
    names = [*taken[: count - 1], *(f"p{number}" for number in range(count))][:count]
    room = MAX_PROPERTY_BYTES - len("kt") - sum(len(name) + 2 for name in names)
    values = [room // count] * (count - 1) + [room - room // count * (count - 1)]
    properties = {name: "v" * size for name, size in zip(names, values, strict=True)}

    await gateway.stored(key="k", tag="t", properties=properties)
    batch = {"messages": [{"body": "b", "key": "k", "tag": "t", "properties": properties}] * 2}
    stored = await gateway.api.post("/v1/topics/orders/messages", json=batch)
    over = await gateway.publish(key="kk", tag="t", properties=properties)

    assert stored.status_code == 200, stored.text
    assert problem(over) == (413, "too_large")
    received = (await gateway.receive(max=10))["messages"]
    assert [message["properties"] for message in received] == [properties] * 3
    await gateway.api.post("/v1/groups/workers/nack", json={"receipts": [message["receipt"] for message in received]})
    redriven = await gateway.api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True})
    assert redriven.status_code == 200, redriven.text
    assert len(await gateway.drain(wait=2)) == 3, "also after a detour through the dead letters"
