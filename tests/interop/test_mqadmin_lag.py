"""While nothing is in flight, our lag is what `mqadmin consumerProgress` prints, in total and queue by queue."""

import re
from dataclasses import replace
from typing import NamedTuple

import httpx
import pytest
from interop_calls import lag, publish, put, serving, shop, take
from java_client import Java

from mqgate import bootstrap
from mqgate.settings import Settings
from mqgate.stack import Stack

MODES = pytest.mark.parametrize("mode", ["message", "queue"])


class Progress(NamedTuple):
    """Per queue its end, what is committed, and the difference; and the sum of the differences."""

    queues: dict[str, tuple[int, int, int]]
    total: int


async def told_by_the_tool(java: Java, group: str = "workers", topic: str = "orders") -> Progress:
    printed = await java.mqadmin("consumerProgress", "-g", java.wire(group))
    rows = [line.split() for line in printed.splitlines() if line.startswith(java.wire(topic))]
    total = re.search(r"Consume Diff Total: (\d+)", printed)
    assert total is not None, printed
    return Progress({f"{row[1]}:{row[2]}": (int(row[3]), int(row[4]), int(row[5])) for row in rows}, int(total[1]))


async def told_by_us(api: httpx.AsyncClient, group: str = "workers") -> Progress:
    found = await lag(api, group)
    queues = {
        each["queue"]: (each["max"], each["committed"], each["ready"] + each["leased"] + each["waiting"])
        for each in found["queues"]
    }
    return Progress(queues, found["lag"])


async def filled(api: httpx.AsyncClient, mode: str) -> None:
    """Four queues of different length, sixty messages together, of which nothing is consumed."""
    await shop(api, queues=4, mode=mode)
    await publish(api, *({"body": str(n), "key": f"k{n % 9}"} for n in range(60)))


@MODES
async def test_a_group_that_consumed_nothing_lags_by_all_there_is(
    api: httpx.AsyncClient, java: Java, mode: str
) -> None:
    """The tool knows only groups that are on the brokers: registering one must put it there, with its start."""
    await filled(api, mode)

    ours, theirs = await told_by_us(api), await told_by_the_tool(java)

    assert ours == theirs
    assert (ours.total, len(ours.queues)) == (60, 4)


@MODES
async def test_what_was_acked_is_no_lag_in_either(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """The first thing an operator compares when he does not trust a new gateway."""
    await filled(api, mode)
    await take(api, 25, wait=1)
    await gateway.mirror.run_once()

    ours, theirs = await told_by_us(api), await told_by_the_tool(java)

    assert ours == theirs
    assert 0 < ours.total < 60


@MODES
async def test_a_group_that_consumed_all_has_no_lag_in_either(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """Also across the messages that came after it had caught up once."""
    await filled(api, mode)
    await take(api, 60)
    await publish(api, {"body": "one more"})
    await take(api, 1)
    await gateway.mirror.run_once()

    ours, theirs = await told_by_us(api), await told_by_the_tool(java)

    assert ours == theirs
    assert ours.total == 0


@MODES
@pytest.mark.parametrize("to", ["earliest", {"local:1": 2, "local:2": 1}])
async def test_a_seek_backwards_is_on_the_brokers_when_it_is_answered(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str, to: object
) -> None:
    """Were it not, and the leases were lost now, what it asked for again would be skipped."""
    await filled(api, mode)
    await take(api, 60)
    await gateway.mirror.run_once()

    answer = await api.post("/v1/groups/workers/seek", json={"to": to, "reason": "a bad release"})
    theirs = await told_by_the_tool(java)
    ours = await told_by_us(api)

    assert answer.status_code == 200, answer.text
    assert ours == theirs
    assert ours.total > 0


async def test_out_of_order_acks_move_the_brokers_offset_only_up_to_the_first_that_is_missing(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway
) -> None:
    """In message mode the tool cannot know of more; what it shows must be safe to go on from."""
    await shop(api)
    await publish(api, *({"body": str(n)} for n in range(10)))
    got = (await api.post("/v1/groups/workers/receive", json={"max": 10})).json()["messages"]
    receipts = [message["receipt"] for message in got if message["offset"] != 4]
    await api.post("/v1/groups/workers/ack", json={"receipts": receipts})
    await gateway.mirror.run_once()

    ours, theirs = await told_by_us(api), await told_by_the_tool(java)

    assert ours.total == 1
    assert ours.queues["local:0"][:2] == theirs.queues["local:0"][:2] == (10, 4)


async def test_a_group_that_begins_at_the_end_has_no_lag_in_either(api: httpx.AsyncClient, java: Java) -> None:
    """The tool counts from 0 what no offset is known of: start offsets are written before the answer."""
    await filled(api, "message")
    await put(api, "groups/late", topic="orders", start="latest")

    ours, theirs = await told_by_us(api, "late"), await told_by_the_tool(java, "late")

    assert ours == theirs
    assert ours.total == 0


async def test_a_group_that_was_deleted_is_gone_from_the_brokers(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway
) -> None:
    """Else a later group of its name would go on where this one stood, and the tool would show a ghost."""
    await filled(api, "message")
    await take(api, 60)
    await gateway.mirror.run_once()
    await api.delete("/v1/groups/workers")

    with pytest.raises(RuntimeError, match="No topic route info"):
        await java.mqadmin("consumerProgress", "-g", java.wire("workers"))
    await put(api, "groups/workers", topic="orders")

    assert (await told_by_the_tool(java)).total == 60


async def test_lag_on_several_brokers_is_told_alike(settings: Settings, java: Java, pair: Stack) -> None:
    """Each broker keeps the offsets of its own queues; a group has to be known to all of them."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with serving(settings) as (gateway, api):
        await filled(api, "queue")
        await take(api, 25, wait=1)
        await gateway.mirror.run_once()

        ours, theirs = await told_by_us(api), await told_by_the_tool(java)

    assert ours == theirs
    assert len(ours.queues) == 8
    assert 0 < ours.total < 60
