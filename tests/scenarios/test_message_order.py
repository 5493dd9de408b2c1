"""Ordered groups over HTTP: the next message of a key after the one before, and no other waits for it."""

import asyncio
import random

import httpx
import pytest
from message_calls import (
    Call,
    ack,
    bodies,
    outcome,
    publish,
    settle,
    shop,
    take,
)

from mqgate import bootstrap
from mqgate.consumption import receive
from mqgate.testing.clock import ManualClock


async def test_an_ordered_group_gives_the_next_of_a_key_only_after_the_one_before(api: httpx.AsyncClient) -> None:
    """Invariant 19, with messages in one batch and over several receives."""
    await shop(api, queues=2, ordered=True)
    await publish(api, "k1", "k2", "k3", key="k")
    await publish(api, "l1", "l2", key="l")
    await publish(api, "free1", "free2")

    first = await take(api)
    nothing = await take(api)
    await ack(api, *(message for message in first if message["body"] == "k1"))

    assert sorted(bodies(first)) == ["free1", "free2", "k1", "l1"]
    assert nothing == []
    assert bodies(await take(api)) == ["k2"]


async def test_concurrent_receives_keep_the_order_of_keys(api: httpx.AsyncClient) -> None:
    """Twenty workers on three keys: each key's messages are worked on one after the other, in order."""
    await shop(api, queues=2, ordered=True)
    for number in range(30):
        await publish(api, f"x{number}", key="x")
        await publish(api, f"y{number}", key="y")
        await publish(api, f"z{number}", key="z")
    done: dict[str, list[int]] = {"x": [], "y": [], "z": []}
    held: set[str] = set()

    async def worker(number: int) -> None:
        dice = random.Random(number)
        while sum(map(len, done.values())) < 90:
            for message in await take(api, max=dice.randint(1, 5)):
                key = message["key"]
                assert key not in held, "two of a key at once"
                held.add(key)
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                held.remove(key)
                if dice.random() < 0.2:
                    assert await outcome(api, "nack", message, delay=0) == (200, "applied")
                else:
                    done[key].append(int(message["body"][1:]))
                    assert await outcome(api, "ack", message) == (200, "applied")

    await asyncio.gather(*map(worker, range(20)))

    assert done == {key: list(range(30)) for key in "xyz"}


async def test_a_nack_blocks_the_key_not_the_queue(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """One bad customer does not stop the others."""
    await shop(api, ordered=True, backoff=["10s"])
    await publish(api, "k1", "k2", key="k")
    (first,) = await take(api)
    await settle(api, "nack", first)
    await publish(api, "l1", key="l")

    meanwhile = await take(api)
    clock.advance(10)
    again = await take(api)

    assert bodies(meanwhile) == ["l1"]
    assert bodies(again) == ["k1"]


async def test_a_client_that_hangs_up_leaves_the_order_as_it_was(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """What waited behind what it was given still waits, and comes once."""
    await shop(api, ordered=True)
    await publish(api, "k1", "k2", key="k")
    await publish(api, "l1", key="l")
    assert await Call(gateway, hung_up=True).answer() is None

    first = await take(api, max=1)
    await ack(api, *first)
    rest = await take(api)

    assert bodies(first) == ["k1"]
    assert sorted(bodies(rest)) == ["k2", "l1"]


async def test_an_ordered_group_is_not_empty_because_others_look_at_its_keys(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many workers who never wait, and a message of its own key for each of their receives."""
    # On a busy machine six looks, one after the other, may take longer than an answer may.
    monkeypatch.setattr(receive, "_LONGEST_LOOK", 30.0)
    await shop(api, ordered=True)
    for number in range(120):
        await publish(api, str(number), key=f"k{number}")

    async def worker() -> list[str]:
        found = []
        for _ in range(20):
            found += bodies(await take(api, max=1))
        return found

    found = await asyncio.gather(*(worker() for _ in range(6)))

    assert sorted(int(body) for each in found for body in each) == list(range(120))
