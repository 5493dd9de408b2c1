"""Ordered groups over HTTP: the next message of a key after the one before, and no other waits for it."""

import asyncio
import random
from typing import Any

import httpx
import pytest
from message_calls import (
    Call,
    ack,
    bodies,
    counted_steps,
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


@pytest.mark.parametrize("wish", [{}, {"attemptId": "one"}], ids=["", "attempt"])
@pytest.mark.parametrize("tags", [{}, {"filter": {"tags": ["red"]}}], ids=["all", "tagged"])
async def test_what_comes_behind_many_that_must_wait_is_found_in_few_steps(
    api: httpx.AsyncClient,
    gateway: bootstrap.Gateway,
    monkeypatch: pytest.MonkeyPatch,
    wish: dict[str, str],
    tags: dict[str, Any],
) -> None:
    """One message at a time would take seconds; what a wide look finds beyond what was asked for stays ready."""
    await shop(api, ordered=True, **tags)
    await publish(api, *(f"x{number}" for number in range(450)), key="x", tag="red")
    await publish(api, *map(str, range(450)), tag="green" if tags else "red", key="x")
    held = await take(api, max=1)
    for key in ("a", "b", "c"):
        await publish(api, f"{key}1", f"{key}2", key=key, tag="red")
    steps = counted_steps(gateway, monkeypatch)

    first = await take(api, max=1, **wish)

    assert (bodies(held), bodies(first)) == (["x0"], ["a1"])
    assert len(steps) < 15
    assert not wish or await take(api, max=1, **wish) == first
    assert [bodies(await take(api, max=1)) for _ in range(3)] == [["b1"], ["c1"], []]
    await ack(api, *first, *held)
    assert sorted(bodies(await take(api))) == ["a2", "x1"]


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
    monkeypatch.setattr(receive, "_MAX_KEY_READ_WAIT", 30.0)
    await shop(api, ordered=True)
    for number in range(120):
        await publish(api, str(number), key=f"k{number}")

    async def worker() -> list[str]:
        found = []
        for _ in range(20):
            found += bodies(await take(api, max=1))
        return found

    found = await asyncio.gather(*(worker() for _ in range(6)))

    assert sorted(int(body) for bodies in found for body in bodies) == list(range(120))
