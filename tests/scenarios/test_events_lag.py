"""Lag samples: how far behind those are who were at work, until they have come to rest."""

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
    """What one more round of samples tells."""
    # By nobody but us.
    await gateway.lag_samples.stop()
    before = len(await _rows(api))
    # First it hears who was at work.
    await gateway.events.run_once()
    await gateway.lag_samples.run_once()
    await gateway.events.run_once()
    return (await _rows(api))[before:]


async def _rows(api: httpx.AsyncClient) -> list[Row]:
    return [row for batch in await batches(api) if batch.schema == "lag/1" for row in batch.rows]


async def test_a_sample_is_what_the_lag_call_answers(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """Queue by queue, with the time of the oldest unsettled message."""
    await shop(api, queues=2)
    stored = await publish(api, *[f"{number}" for number in range(5)], key="same")
    first, *_ = await take(api, max=3)
    await ack(api, first)

    rows = await sampled(gateway, api)

    told = [{name: row[name] for name in _MEMBERS} for row in rows]
    asked = [{name: queue[name] for name in _MEMBERS} for queue in (await lag(api))["queues"]]
    oldest = milliseconds(parse_instant(stored[1]["storedAt"], "test"))
    assert told == asked
    assert sum(row["ready"] + row["leased"] for row in rows) == 4
    assert {(row["topic"], row["group"], row["client"]) for row in rows} == {("orders", "workers", None)}
    # A broker's own time of storing is not told to the publisher, who is told when it was sent.
    assert all(0 <= row["oldest_at"] - oldest < 60_000 for row in rows)


async def test_groups_are_sampled_while_they_work_and_once_more_but_not_when_idle(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """Work on a topic is work of all its groups; what is idle costs the stores nothing."""
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
    """Each is behind by its own."""
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
async def test_a_group_that_went_away_spoils_no_sample(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """Between the work and the sample anything may be deleted."""
    await shop(api)
    await put(api, "groups/others", topic="orders")
    await publish(api, "a")
    await gateway.events.run_once()
    await api.delete("/v1/groups/others")
    await gateway.leases.forget("workers")
    await publish(api, "b")

    assert await sampled(gateway, api) == []
