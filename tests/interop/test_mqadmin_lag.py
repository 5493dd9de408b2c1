"""While nothing is leased, the lag of mqgate equals that of `mqadmin consumerProgress`, in total and per queue."""

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
    """Max offset, committed offset and lag per queue, and the total lag."""

    queues: dict[str, tuple[int, int, int]]
    total: int


async def mqadmin_progress(java: Java, group: str = "workers", topic: str = "orders") -> Progress:
    printed = await java.mqadmin("consumerProgress", "-g", java.wire(group))
    rows = [line.split() for line in printed.splitlines() if line.startswith(java.wire(topic))]
    total = re.search(r"Consume Diff Total: (\d+)", printed)
    assert total is not None, printed
    return Progress({f"{row[1]}:{row[2]}": (int(row[3]), int(row[4]), int(row[5])) for row in rows}, int(total[1]))


async def mqgate_progress(api: httpx.AsyncClient, group: str = "workers") -> Progress:
    found = await lag(api, group)
    queues = {
        queue["queue"]: (queue["max"], queue["committed"], queue["ready"] + queue["leased"] + queue["waiting"])
        for queue in found["queues"]
    }
    return Progress(queues, found["lag"])


async def filled(api: httpx.AsyncClient, mode: str) -> None:
    """Publish 60 messages to four queues of different lengths."""
    await shop(api, queues=4, mode=mode)
    await publish(api, *({"body": str(n), "key": f"k{n % 9}"} for n in range(60)))


@MODES
async def test_a_group_that_consumed_nothing_lags_by_all_messages(
    api: httpx.AsyncClient, java: Java, mode: str
) -> None:
    """Mqadmin shows only groups on the brokers, so registering must create the group there, with its start."""
    await filled(api, mode)

    ours, theirs = await mqgate_progress(api), await mqadmin_progress(java)

    assert ours == theirs
    assert (ours.total, len(ours.queues)) == (60, 4)


@MODES
async def test_acked_messages_are_not_lag_in_both(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """Operators compare the lag when they introduce a gateway."""
    await filled(api, mode)
    await take(api, 25, wait=1)
    await gateway.mirror.run_once()

    ours, theirs = await mqgate_progress(api), await mqadmin_progress(java)

    assert ours == theirs
    assert 0 < ours.total < 60


@MODES
async def test_a_group_that_consumed_all_messages_has_no_lag_in_both(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str
) -> None:
    """This includes messages that arrived after the group had caught up once."""
    await filled(api, mode)
    await take(api, 60)
    await publish(api, {"body": "one more"})
    await take(api, 1)
    await gateway.mirror.run_once()

    ours, theirs = await mqgate_progress(api), await mqadmin_progress(java)

    assert ours == theirs
    assert ours.total == 0


@MODES
@pytest.mark.parametrize("to", ["earliest", {"local:1": 2, "local:2": 1}])
async def test_a_seek_backwards_is_stored_on_the_brokers_before_its_response(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway, mode: str, to: object
) -> None:
    """Otherwise a loss of the lease state would skip the messages of the seek."""
    await filled(api, mode)
    await take(api, 60)
    await gateway.mirror.run_once()

    response = await api.post("/v1/groups/workers/seek", json={"to": to, "reason": "a bad release"})
    theirs = await mqadmin_progress(java)
    ours = await mqgate_progress(api)

    assert response.status_code == 200, response.text
    assert ours == theirs
    assert ours.total > 0


async def test_out_of_order_acks_move_the_offset_on_the_brokers_to_the_first_unacked_message(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway
) -> None:
    """A consumer that continues from the offset on the brokers must not skip a message."""
    await shop(api)
    await publish(api, *({"body": str(n)} for n in range(10)))
    got = (await api.post("/v1/groups/workers/receive", json={"max": 10})).json()["messages"]
    receipts = [message["receipt"] for message in got if message["offset"] != 4]
    await api.post("/v1/groups/workers/ack", json={"receipts": receipts})
    await gateway.mirror.run_once()

    ours, theirs = await mqgate_progress(api), await mqadmin_progress(java)

    assert ours.total == 1
    assert ours.queues["local:0"][:2] == theirs.queues["local:0"][:2] == (10, 4)


async def test_a_group_that_starts_at_the_end_has_no_lag_in_both(api: httpx.AsyncClient, java: Java) -> None:
    """Mqadmin counts from 0 without an offset, so start offsets are written before the response."""
    await filled(api, "message")
    await put(api, "groups/late", topic="orders", start="latest")

    ours, theirs = await mqgate_progress(api, "late"), await mqadmin_progress(java, "late")

    assert ours == theirs
    assert ours.total == 0


async def test_a_deleted_group_is_deleted_on_the_brokers(
    api: httpx.AsyncClient, java: Java, gateway: bootstrap.Gateway
) -> None:
    """Otherwise a later group of the same name would continue at the old offsets."""
    await filled(api, "message")
    await take(api, 60)
    await gateway.mirror.run_once()
    await api.delete("/v1/groups/workers")

    with pytest.raises(RuntimeError, match="No topic route info"):
        await java.mqadmin("consumerProgress", "-g", java.wire("workers"))
    await put(api, "groups/workers", topic="orders")

    assert (await mqadmin_progress(java)).total == 60


async def test_lag_on_several_brokers_is_the_same_in_both(settings: Settings, java: Java, pair: Stack) -> None:
    """Each broker stores the offsets of its own queues, so the group must exist on all of them."""
    settings = replace(settings, rocketmq=replace(settings.rocketmq, cluster="pair"))
    async with serving(settings) as (gateway, api):
        await filled(api, "queue")
        await take(api, 25, wait=1)
        await gateway.mirror.run_once()

        ours, theirs = await mqgate_progress(api), await mqadmin_progress(java)

    assert ours == theirs
    assert sorted(ours.queues) == [f"{broker}:{number}" for broker in ("broker-a", "broker-b") for number in range(2)]
    assert 0 < ours.total < 60
