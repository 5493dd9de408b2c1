"""Ordered groups over HTTP: a message follows the earlier ones of its key, and no other message waits for it."""

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
    shop,
    take,
)

from mqgate import bootstrap
from mqgate.consumption import receive


async def test_the_next_message_of_a_key_is_granted_after_the_previous_one(api: httpx.AsyncClient) -> None:
    """Invariant 19, for messages of one batch and over several receives."""
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
    """Twenty workers on three keys process the messages of each key one after the other, in order."""
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
async def test_a_message_behind_many_waiting_ones_is_found_in_few_steps(
    api: httpx.AsyncClient,
    gateway: bootstrap.Gateway,
    monkeypatch: pytest.MonkeyPatch,
    wish: dict[str, str],
    tags: dict[str, Any],
) -> None:
    """One message per step would take seconds. A wide step leaves other messages ready."""
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


async def test_a_disconnected_client_does_not_change_the_order(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Messages behind the released ones still wait, and are delivered once."""
    await shop(api, ordered=True)
    await publish(api, "k1", "k2", key="k")
    await publish(api, "l1", key="l")
    assert await Call(gateway, is_disconnected=True).response() is None

    first = await take(api, max=1)
    await ack(api, *first)
    rest = await take(api)

    assert bodies(first) == ["k1"]
    assert sorted(bodies(rest)) == ["k2", "l1"]


async def test_concurrent_key_reads_do_not_make_a_group_look_empty(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many workers without wait, and a message of a different key for each of their receives."""
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
