"""Lag samples: the lag of active groups, until they have no more work."""

from typing import Any

import httpx
import pytest
from message_calls import ack, lag, publish, put, shop, take

from event_log import batches
from mqgate import bootstrap
from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant

Row = dict[str, Any]
_MEMBERS = ("queue", "min", "max", "committed", "ready", "leased", "waiting")


async def sampled(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> list[Row]:
    """Run one more round of samples and return its rows."""
    # Only the test takes samples.
    await gateway.lag_samples.stop()
    before = len(await _rows(api))
    # First it learns which groups were active.
    await gateway.events.run_once()
    await gateway.lag_samples.run_once()
    await gateway.events.run_once()
    return (await _rows(api))[before:]


async def _rows(api: httpx.AsyncClient) -> list[Row]:
    return [row for batch in await batches(api) if batch.schema == "lag/1" for row in batch.rows]


async def test_a_lag_sample_equals_the_response_of_the_lag_call(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """For each queue, with the store time of the oldest unsettled message."""
    await shop(api, queues=2)
    stored = await publish(api, *[f"{number}" for number in range(5)], key="same")
    first, *_ = await take(api, max=3)
    await ack(api, first)

    rows = await sampled(gateway, api)

    sampled_rows = [{name: row[name] for name in _MEMBERS} for row in rows]
    lag_rows = [{name: queue[name] for name in _MEMBERS} for queue in (await lag(api))["queues"]]
    oldest = milliseconds(parse_instant(stored[1]["storedAt"], "test"))
    assert sampled_rows == lag_rows
    assert sum(row["ready"] + row["leased"] for row in rows) == 4
    assert {(row["topic"], row["group"], row["client"]) for row in rows} == {("orders", "workers", None)}
    # A broker does not return the time that it stored; the publisher gets the time at which it was sent.
    assert all(0 <= row["oldest_at"] - oldest < 60_000 for row in rows)


async def test_active_groups_are_sampled_and_idle_ones_once_more(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """An event of a topic makes all of its groups active. Idle groups cost the stores nothing."""
    await shop(api)
    await put(api, "groups/others", topic="orders")
    await put(api, "topics/quiet", queues=1)
    await put(api, "groups/idle", topic="quiet")

    rounds = [await sampled(gateway, api)]
    await publish(api, "a")
    rounds.append(await sampled(gateway, api))
    await ack(api, *await take(api))
    rounds += [await sampled(gateway, api) for _ in range(3)]

    groups = [sorted(row["group"] for row in rows) for rows in rounds]
    assert groups == [[], ["others", "workers"], ["others", "workers"], ["workers"], []]
    assert [row["committed"] for rows in rounds for row in rows if row["group"] == "workers"] == [0, 1, 1]


async def test_every_client_of_a_broadcast_group_is_sampled(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """Each client has its own lag."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await publish(api, "a", "b")
    for client, through in (("ada", 1), ("ben", 0)):
        received = (await api.post("/v1/groups/all/receive", json={"clientId": client})).json()
        receipt = received["lease"]["receipt"]
        await api.post("/v1/groups/all/ack", json={"receipt": receipt, "through": through})

    rows = await sampled(gateway, api)

    assert sorted((row["client"], row["committed"], row["ready"]) for row in rows) == [("ada", 2, 0), ("ben", 1, 1)]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_deleted_group_does_not_fail_the_samples_of_others(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """A group may be deleted between its events and the sample."""
    await shop(api)
    await put(api, "groups/others", topic="orders")
    await publish(api, "a")
    await gateway.events.run_once()
    await api.delete("/v1/groups/others")
    await gateway.leases.forget("workers")
    await publish(api, "b")

    assert await sampled(gateway, api) == []
