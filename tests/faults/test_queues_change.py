"""Queues that are added, closed and opened: keys keep their queues, and parked receives get new queues."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fault_calls import BROKERS, QUEUES, Gateway, Open, eventually, key_for, opened, problem, timed

from mqgate.rocketmq import RocketMQClient
from mqgate.settings import Settings
from mqgate.stack import Stack

KEYS = [f"k{number}" for number in range(32)]


async def test_a_parked_receive_gets_messages_of_added_queues(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str]
) -> None:
    """This includes messages of other clients, although it parked before the queue existed."""
    await gateway.shop(queues=2)
    parked = asyncio.create_task(gateway.receive(wait=20))
    await gateway.parked()
    await asyncio.sleep(1)

    await gateway.put("topics/orders", queues=8)
    await asyncio.sleep(1)
    await direct.messages.send("broker-b", wire("orders"), 3, b"new", {})
    received, seconds = await timed(parked)

    assert [(message["queue"], message["body"]) for message in received["messages"]] == [("broker-b:3", "new")]
    assert seconds < 10, "woken, not at the end of its wait"
    assert (await gateway.stored(key=key_for("broker-a", 3, queues=4)))["queue"] == "broker-a:3"


async def publish_all(gateway: Gateway) -> dict[str, str]:
    """Publish a message for every key. Return its queue, or the error."""
    responses = {key: await gateway.publish(body=f"body of {key}", key=key) for key in KEYS}
    return {
        key: response.json()["queue"] if response.status_code == 201 else str(problem(response))
        for key, response in responses.items()
    }


@pytest.mark.slow
async def test_a_gateway_started_without_a_broker_keeps_its_keys(
    open_gateway: Open, settings: Settings, pair: Stack, tmp_path: Path
) -> None:
    """Keys of a broker that it never saw go to no other queue. No acked message returns."""
    async with open_gateway() as gateway:
        await gateway.shop()
        homes = await publish_all(gateway)
        assert {home.partition(":")[0] for home in homes.values()} == set(BROKERS)
        assert len(await gateway.drain(wait=0)) == len(KEYS)
        unread = await gateway.stored(body="unread", key=key_for("broker-a"))
        assert unread["queue"] == "broker-a:0"
    await asyncio.to_thread(pair.kill, "broker-a")

    elsewhere = replace(settings, sqlite=replace(settings.sqlite, directory=str(tmp_path / "publisher")))
    async with open_gateway() as gateway, opened(elsewhere) as publisher:
        await publisher.put("topics/orders", queues=QUEUES * len(BROKERS))
        during = await publish_all(gateway)
        loose = await gateway.stored(body="loose")
        found = await gateway.drain(wait=0)
        status, readiness, parts = await gateway.ready()
        await publisher.stored(body="loose")
        await asyncio.to_thread(pair.start, "broker-a")
        # It has no groups, so nothing but its publishing finds out that the broker is back.
        await eventually(lambda: _is_everywhere(publisher), 10)
        after = await publish_all(gateway)
        rest = await gateway.drain()
        await asyncio.gather(*(asyncio.to_thread(pair.kill, broker) for broker in BROKERS))
        await eventually(lambda: _is_unavailable(gateway), 10)
        nothing = await gateway.publish()

    assert {key: home for key, home in homes.items() if home.startswith("broker-b")} == {
        key: home for key, home in during.items() if home.startswith("broker-")
    }
    assert {home for home in during.values() if not home.startswith("broker-")} == {"(503, 'queue_unavailable')"}
    assert loose["queue"].startswith("broker-b:")
    assert len(found) == 1 + sum(home.startswith("broker-b") for home in homes.values())
    assert (status, readiness, parts["broker broker-a"]) == (200, "degraded", "unreachable")
    assert nothing.status_code == 503, nothing.text
    assert after == homes
    bodies = [message["body"] for message in rest if message["key"] is not None]
    assert sorted(bodies) == sorted(["unread", *(f"body of {key}" for key in KEYS)])


async def _is_unavailable(gateway: Gateway) -> bool:
    status, readiness, parts = await gateway.ready()
    return (status, readiness, parts.get("log")) == (503, "unavailable", "storage_unavailable")


async def _is_everywhere(gateway: Gateway) -> bool:
    """Return whether messages without keys go to both brokers."""
    stored = [await gateway.stored(body="loose") for _ in range(16)]
    return len({message["queue"].partition(":")[0] for message in stored}) == len(BROKERS)
