"""What a broker refuses, as an HTTP client sees it: a clear error, or another broker, and never a 500."""

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
async def test_a_topic_deleted_behind_our_back_is_not_found_until_it_is_made_again(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str], is_layout_kept: bool
) -> None:
    """RocketMQ's tools leave different things behind; a new topic begins anew, and so do its groups."""
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
    await gateway.put("topics/orders", queues=QUEUES)
    again = await gateway.stored(body="again", key="k")
    assert again["offset"] == 0
    assert [message["body"] for message in await gateway.drain()] == ["again"]


async def remove_topic(direct: RocketMQClient, topic: str, *brokers: str) -> None:
    """These brokers have no timers, and have forgotten all of a topic when they stumble over the number of its."""
    for broker in brokers:
        await direct.brokers.call(broker, DELETE_TOPIC_IN_BROKER, {"topic": topic}, allowed=(SYSTEM_ERROR,))


async def test_a_broker_that_lost_the_topic_only_loses_its_share(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str]
) -> None:
    """A broker set up anew: the other one goes on, and the topic is not taken for deleted."""
    await gateway.shop()
    await remove_topic(direct, wire("orders"), "broker-a")

    stored = [await gateway.stored(body=str(number)) for number in range(4)]

    assert {message["queue"].partition(":")[0] for message in stored} == {"broker-b"}
    assert problem(await gateway.publish(key=key_for("broker-a"))) == (503, "queue_unavailable")
    assert len(await gateway.drain(wait=0)) == 4
    await gateway.put("topics/orders", queues=QUEUES)
    assert (await gateway.stored(key=key_for("broker-a")))["queue"] == "broker-a:0"


async def test_a_read_only_broker_is_left_out_and_its_keys_are_told(gateway: Gateway, direct: RocketMQClient) -> None:
    """brokerPermission=4, as operators set it before they take a broker away."""
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


async def test_the_largest_message_is_stored_and_one_that_no_broker_takes_is_the_senders_fault(
    settings: Settings,
) -> None:
    """Our limit may be set higher than the brokers'; then they refuse, and it is said who did."""
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
    """There it would end in a NullPointerException."""
    await gateway.shop()

    empty = await gateway.publish(body="")
    bare = await gateway.api.post("/v1/topics/orders/messages", content=b"")

    assert problem(empty) == problem(bare) == (400, "empty_body")


@pytest.mark.parametrize("count", [1, 1_000])
async def test_whatever_properties_are_accepted_can_be_stored(gateway: Gateway, count: int) -> None:
    """Brokers take 32,767 bytes: the id, the key, names that are RocketMQ's own and what a broker adds, included."""
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
