"""Two hundred workers ack, nack, extend, abandon and disconnect at random. Leases are exclusive, and nothing is lost.

The workers record their responses and when they stopped using a lease. Afterwards the notes of a message must form one
consistent sequence: leases that follow each other, and one end.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import pytest
from message_calls import lag, publish, put

from mqgate import bootstrap
from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant

# A broker hands out what was redelivered message by message: the same story, a shorter one.
MESSAGES = {"sqlite": 20_000, "rocketmq": 5_000}
WORKERS = 100
VISIBILITIES = (2_000, 4_000)
MAX_ATTEMPTS = 4
KEYS = 2_000


@dataclass
class Lease:
    """One delivery as its holder sees it: its start, and the earliest instant at which it may end."""

    granted_at: int
    received_at: int
    until: int
    is_acked: bool = False


@dataclass
class Notes:
    """The responses of the workers of one group: leases by message and delivery."""

    leases: dict[str, dict[int, Lease]] = field(default_factory=dict)
    is_over: bool = False

    def write_down(self, message: dict[str, Any], visibility: int) -> Lease:
        own = self.leases.setdefault(message["id"], {})
        until = ms(message["leasedUntil"])
        assert message["delivery"] not in own, "one delivery to two workers"
        lease = own[message["delivery"]] = Lease(until - visibility, now(), until)
        return lease


def ms(text: str) -> int:
    return milliseconds(parse_instant(text, ""))


def now() -> int:
    return time.time_ns() // 1_000_000


async def call(gateway: bootstrap.Gateway, path: str, body: Any, *, hangs_up: bool = False) -> Any:
    """Send a POST over bare ASGI. Return None if the client disconnected before the response."""
    raw = msgspec.json.encode(body)
    events = [{"type": "http.request", "body": raw, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if events:
            return events.pop()
        if hangs_up:
            return {"type": "http.disconnect"}
        return await asyncio.get_running_loop().create_future()

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())],
        "client": ("127.0.0.1", 5000),
    }
    await gateway.app(scope, receive, send)
    if not sent:
        return None
    response = msgspec.json.decode(sent[1]["body"])
    assert sent[0]["status"] < 300, response
    return response


async def worker(gateway: bootstrap.Gateway, group: str, notes: Notes, number: int) -> None:
    dice = random.Random(number)
    path = f"/v1/groups/{group}"
    carried: list[tuple[str, Lease]] = []
    while carried or not notes.is_over:
        visibility = dice.choice(VISIBILITIES)
        wish = {"max": dice.randint(1, 80), "wait": 1, "visibility": visibility / 1000}
        if dice.random() < 0.05:
            # A long lease: if it were stranded, this test would see it, not wait for its end.
            await call(gateway, f"{path}/receive", {**wish, "wait": 0, "visibility": 600}, hangs_up=True)
        let_go_at = now()
        response = await call(gateway, f"{path}/receive", {**wish, "ack": [receipt for receipt, _ in carried]})
        for (_, lease), acked in zip(carried, response["acked"], strict=True):
            lease.is_acked = acked["outcome"] in {"applied", "late_applied"}
            # Lost: its lease had expired, and the message was granted again or dead-lettered.
            assert lease.is_acked or acked["outcome"] == "lost", acked
            lease.until = min(lease.until, let_go_at)
        taken = [(message["receipt"], notes.write_down(message, visibility)) for message in response["messages"]]
        carried = await work(gateway, path, taken, dice)


async def work(
    gateway: bootstrap.Gateway, path: str, taken: list[tuple[str, Lease]], dice: random.Random
) -> list[tuple[str, Lease]]:
    """Nack some messages, extend some, abandon some. The others are acked with the next receive."""
    nacked, extended, done = [], [], []
    for message in taken:
        fate = dice.random()
        if fate < 0.05:
            nacked.append(message)
        elif fate < 0.99:
            done.append(message)
            if fate < 0.07:
                extended.append(message)
    if extended:
        receipts = [receipt for receipt, _ in extended]
        response = await call(gateway, f"{path}/extend", {"receipts": receipts, "visibility": 4})
        for (_, lease), result in zip(extended, response["results"], strict=True):
            if result["outcome"] in {"applied", "late_applied"}:
                lease.until = ms(result["leasedUntil"])
    if nacked:
        let_go_at = now()
        receipts = [receipt for receipt, _ in nacked]
        await call(gateway, f"{path}/nack", {"receipts": receipts, "delay": dice.choice((0, 0.05)), "reason": "no"})
        for _, lease in nacked:
            lease.until = min(lease.until, let_go_at)
    return done


async def finished(api: httpx.AsyncClient, group: str, notes: Notes) -> None:
    """Wait until no message is left, then stop the workers."""
    while (await lag(api, group))["lag"]:  # noqa: ASYNC110 - no event reports that the lag is 0
        await asyncio.sleep(0.2)
    notes.is_over = True


async def dead_ids(api: httpx.AsyncClient, group: str) -> list[str]:
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get(f"/v1/groups/{group}/dead-letters", params={"limit": 1000, **cursor})).json()
        ids += [letter["id"] for letter in page["items"]]
        if page["next"] is None:
            return ids
        cursor = {"cursor": page["next"]}


def check_numbers(leases: dict[int, Lease], began: int) -> None:
    """Released deliveries do not count. A number may be missing only if a whole lease expired in between."""
    last, free_at = 0, began
    for number in sorted(leases):
        lease = leases[number]
        missing = number - last - 1
        assert lease.granted_at - free_at >= missing * min(VISIBILITIES), ("counted and not handed out", leases)
        last, free_at = number, lease.until


def check(notes: Notes, ids: list[str], dead: list[str]) -> None:
    """Every message was acked once or is a dead letter, never both, and its leases follow each other."""
    assert len(dead) == len(set(dead)), "a message has two dead letters"
    acked = set()
    began = min(lease.granted_at for leases in notes.leases.values() for lease in leases.values())
    for message_id, leases in notes.leases.items():
        check_numbers(leases, began)
        assert max(leases) <= MAX_ATTEMPTS
        for first, second in pairwise(leases[number] for number in sorted(leases)):
            assert second.granted_at >= first.until, ("two leases at once", message_id, leases)
            assert not first.is_acked, "delivered after it was acked"
        if leases[max(leases)].is_acked:
            acked.add(message_id)
    assert not acked & set(dead)
    assert acked | set(dead) == set(ids)


def check_order(notes: Notes, ids: list[str], keys: list[str | None]) -> None:
    """The next message of a key was granted only after the last lease of the one before had ended."""
    last: dict[str, int] = {}
    for message_id, key in zip(ids, keys, strict=True):
        # None at all: on a starved machine its leases ran out one after the other before an answer was ready.
        leases = notes.leases.get(message_id)
        if key is not None and leases:
            assert leases[min(leases)].received_at >= last.get(key, 0), "two of a key at once, or out of order"
            last[key] = leases[max(leases)].until


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_message_is_settled_once_or_dead_lettered(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, engine: str
) -> None:
    """Leases never overlap, deliveries stay within maxAttempts, and the ordered group keeps the order of keys."""
    await put(live_api, "topics/orders", queues=8)
    groups = {"plain": Notes(), "ordered": Notes()}
    for group in groups:
        settings = {"maxAttempts": MAX_ATTEMPTS, "backoff": [0, 0.05], "ordered": group == "ordered"}
        await put(live_api, f"groups/{group}", topic="orders", **settings)
    ids: list[str] = []
    keys = [f"k{number % KEYS}" if number // KEYS % 2 else None for number in range(MESSAGES[engine])]
    for start in range(0, MESSAGES[engine], 1_000):
        items = [{"body": str(n), "key": keys[n]} for n in range(start, start + 1_000)]
        response = await call(live, "/v1/topics/orders/messages", {"messages": items})
        ids += [result["id"] for result in response["results"]]

    async with asyncio.TaskGroup() as tasks:
        for group, notes in groups.items():
            tasks.create_task(finished(live_api, group, notes))
            for number in range(WORKERS):
                tasks.create_task(worker(live, group, notes, number))

    for group, notes in groups.items():
        dead = await dead_ids(live_api, group)
        check(notes, ids, dead)
    check_order(groups["ordered"], ids, keys)
    assert await publish(live_api, "and it goes on")
