"""One of two brokers is killed under load and restarted: no confirmed message is lost, and the other broker continues.

This is one test because a broker takes seconds to restart. Publishers and consumers use one topic, while the guarantees
are checked one by one on a second, quiet topic.
"""

import asyncio
import time

import pytest
from fault_calls import Gateway, eventually, key_for, problem, timed
from fault_load import Load

from mqgate.rocketmq import RocketMQClient
from mqgate.stack import Stack

DEAD, ALIVE = key_for("broker-a"), key_for("broker-b")


async def prepare(gateway: Gateway) -> dict[str, object]:
    """Create a quiet topic with two messages on broker-a, one of which is leased."""
    await gateway.shop("quiet", "waiting", visibility="60s")
    await gateway.stored("quiet", body="leased", key=DEAD)
    leased = await gateway.receive("waiting", max=1, wait=5)
    assert [message["body"] for message in leased["messages"]] == ["leased"]
    backlog = await gateway.stored("quiet", body="backlog", key=DEAD)
    assert backlog["queue"] == "broker-a:0"
    return leased


async def during_the_outage(gateway: Gateway, direct: RocketMQClient, topic: str, leased: dict[str, object]) -> None:
    killed_at = time.monotonic()
    await eventually(lambda: is_stored(gateway), 3)
    print(f"without key: stored again {time.monotonic() - killed_at:.2f} s after the kill")  # noqa: T201

    await gateway.drain("waiting", wait=0)
    parked = asyncio.create_task(timed(gateway.receive("waiting", wait=20)))
    await asyncio.sleep(1)
    assert not parked.done(), "a dead broker's message cannot come"
    sent_at = time.monotonic()
    await direct.messages.send("broker-b", topic, 3, b"woken", {})
    received, _ = await parked
    print(f"woken by the other broker after {time.monotonic() - sent_at:.3f} s")  # noqa: T201
    assert time.monotonic() - sent_at < 1
    assert [message["body"] for message in received["messages"]] == ["woken"]
    assert await gateway.ack(received, "waiting") == ["applied"]
    assert await gateway.ack(leased, "waiting") == ["applied"], "an ack needs no broker"

    for _ in range(3):
        refused = await gateway.publish("quiet", key=DEAD)
        assert problem(refused) == (503, "queue_unavailable")
        assert refused.json()["retryable"] is True
        assert "retry-after" in refused.headers
        assert (await gateway.stored("quiet", body="b", key=ALIVE))["queue"] == "broker-b:0"
    status, readiness, parts = await gateway.ready()
    assert (status, readiness, parts["broker broker-a"], parts["broker broker-b"]) == (
        200,
        "degraded",
        "unreachable",
        "ok",
    )
    # Where it begins could not be written down at the dead broker.
    newcomer = await gateway.api.put("/v1/groups/newcomer", json={"topic": "quiet"})
    assert problem(newcomer) == (503, "storage_unavailable")


async def is_stored(gateway: Gateway) -> bool:
    response = await gateway.publish("quiet", body="loose")
    assert response.status_code in {201, 503}, response.text
    return response.status_code == 201


async def after_the_restart(gateway: Gateway) -> None:
    async def is_taken() -> bool:
        return (await gateway.publish("quiet", body="again", key=DEAD)).status_code == 201

    print(f"keyed again {await eventually(is_taken, 5):.2f} s after the restart")  # noqa: T201
    assert (await gateway.stored("quiet", body="again", key=DEAD))["queue"] == "broker-a:0"
    bodies = [message["body"] for message in await gateway.drain("waiting")]
    assert "backlog" in bodies
    assert "leased" not in bodies, "what was acked during the outage is final"
    assert (await gateway.ready())[:2] == (200, "ok")
    await gateway.put("groups/newcomer", topic="quiet")


@pytest.mark.slow
async def test_no_message_is_lost_if_a_broker_is_killed_under_load(
    gateway: Gateway, pair: Stack, direct: RocketMQClient, wire
) -> None:
    """Every group gets every confirmed message, keys keep their queues, and the other broker is not delayed."""
    await gateway.shop("busy", "singles", visibility="5s", maxAttempts=1000, backoff=["0s"])
    await gateway.put("groups/queues", topic="busy", mode="queue", visibility="5s", maxAttempts=1000)
    leased = await prepare(gateway)
    load = Load(gateway, "busy")
    publishers = [load.loose("l1"), load.loose("l2"), load.keyed("k1"), load.keyed("k2"), load.once("o1")]
    consumers = [load.consumer(group) for group in ("singles", "singles", "queues", "queues")]

    async with load.running(*publishers, *consumers):
        await asyncio.sleep(1.5)
        await asyncio.to_thread(pair.kill, "broker-a")
        await during_the_outage(gateway, direct, wire("quiet"), leased)
        _, seconds = await timed(asyncio.to_thread(pair.start, "broker-a"))
        print(f"broker-a came back within {seconds:.1f} s")  # noqa: T201
        await after_the_restart(gateway)
        await asyncio.sleep(1)
    async with asyncio.timeout(30):
        await asyncio.gather(load.drain("singles"), load.drain("queues"))

    notes = load.notes
    print(f"{len(notes.sent)} sent, {len(notes.acked)} stored, refused {dict(notes.failed)}")  # noqa: T201
    assert len(notes.acked) > 200
    assert notes.failed["queue_unavailable"]
    assert {key: queues for key, queues in notes.homes.items() if len(queues) > 1} == {}, "a key has one queue"
    for group in ("singles", "queues"):
        delivered = notes.delivered[group]
        assert set(notes.acked) - set(delivered) == set(), f"stored, and never came to {group}"
        assert set(delivered) <= notes.sent
        assert {body: ids for body, ids in delivered.items() if len(ids) > 1} == {}, "a message has one id"
        assert all(delivered[body] == {own} for body, own in notes.acked.items())
