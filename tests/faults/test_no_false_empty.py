"""No stored message is missed, even if it bypassed the gateway: only the brokers can report it."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fault_calls import BROKERS, QUEUES, Gateway

from mqgate.rocketmq import RocketMQClient

WAIT = 20
Send = Callable[[str], Awaitable[Any]]


def anywhere() -> tuple[str, int]:
    return random.choice(BROKERS), random.randrange(QUEUES)


async def wake_ups(gateway: Gateway, count: int, send: Send) -> list[float]:
    """Send single messages to a parked client. Return the sorted times until they arrived."""
    took: list[float] = []
    for number in range(count):
        parked = asyncio.create_task(gateway.receive(wait=WAIT))
        await gateway.parked()
        sent_at = time.monotonic()
        await send(str(number))
        received = await parked
        took.append(time.monotonic() - sent_at)
        assert [message["body"] for message in received["messages"]] == [str(number)], "none comes back empty"
        assert await gateway.ack(received) == ["applied"]
    return sorted(took)


def summary(took: list[float]) -> str:
    at = {part: f"{took[int(len(took) * part / 100)] * 1000:.0f} ms" for part in (50, 99)}
    return f"{len(took)} wake-ups: p50 {at[50]}, p99 {at[99]}, longest {took[-1] * 1000:.0f} ms"


@pytest.mark.slow
async def test_a_message_on_any_queue_of_any_broker_wakes(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str]
) -> None:
    """Five hundred messages of another client, each on a random queue. Then some through the gateway."""
    await gateway.shop()

    took = await wake_ups(
        gateway, 500, lambda body: direct.messages.send(*_at(wire("orders"), anywhere()), body.encode(), {})
    )
    own = await wake_ups(gateway, 100, lambda body: gateway.stored(body=body))

    print(f"stored past the gateway: {summary(took)}\npublished through it: {summary(own)}")  # noqa: T201 - measured
    assert max(took[-1], own[-1]) < WAIT / 2


def _at(topic: str, place: tuple[str, int]) -> tuple[str, str, int]:
    return place[0], topic, place[1]


async def test_a_receive_without_wait_misses_nothing_older_than_a_second(
    gateway: Gateway, direct: RocketMQClient, wire: Callable[[str], str]
) -> None:
    """No receive is parked, so no queue is watched. The bounds are queried before an empty response."""
    await gateway.shop()
    for _ in range(4):
        assert (await gateway.receive())["messages"] == []
        sent = {f"{number}" for number in range(8)}
        for body in sorted(sent):
            await direct.messages.send(*_at(wire("orders"), anywhere()), body.encode(), {})
        await asyncio.sleep(1)

        found: list[str] = []
        while (received := await gateway.receive(max=3))["messages"]:
            found += [message["body"] for message in received["messages"]]
            await gateway.ack(received)

        assert set(found) == sent


@pytest.mark.slow
async def test_parked_receives_cost_one_request_per_queue_and_15_seconds(gateway: Gateway) -> None:
    """All parked receives share the watch. Afterwards the brokers get no requests."""
    await gateway.shop()
    waiting = [asyncio.create_task(gateway.receive(wait=7)) for _ in range(20)]
    await gateway.parked(20)
    await asyncio.sleep(1)
    before = await gateway.metric("mqgate_watch_requests_total")

    await asyncio.gather(*waiting)

    asked = await gateway.metric("mqgate_watch_requests_total") - before
    assert before == QUEUES * len(BROKERS), "one each, however many wait"
    assert asked <= QUEUES * len(BROKERS) / 2
