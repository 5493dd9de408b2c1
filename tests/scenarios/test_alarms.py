"""An operator sets a threshold and a channel; the backlog grows, the alarm fires, the group catches up."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from alarm_calls import SECRET, add_channel, by_hand, items, step, watch_backlog
from message_calls import outcome, publish, put, receive, shop, take

from mqgate import bootstrap
from mqgate.settings import Settings
from mqgate.stats.engine import open_stats
from mqgate.testing.clock import ManualClock
from webhook_receiver import WebhookReceiver, webhook_receiver

PassTime = Callable[[float], None]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return by_hand(settings)


@pytest.fixture
async def gateway(settings: Settings, clock: ManualClock) -> AsyncIterator[bootstrap.Gateway]:
    async with bootstrap.gateway(settings, wall_ms=clock) as built:
        yield built


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as receiver:
        yield receiver


async def test_a_growing_backlog_fires_and_a_consumed_one_recovers(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, receiver: WebhookReceiver, pass_time: PassTime
) -> None:
    """The whole story of an alarm, as the operator and the receiver of the webhook see it."""
    await shop(api)
    await watch_backlog(api, 2)
    await add_channel(api, receiver)
    await publish(api, *range(5))

    await step(gateway)
    (pending,) = await items(api, "")
    pass_time(60)
    await step(gateway)
    (firing,) = await items(api, "?rule=backlog_count")
    for message in await take(api, max=10):
        assert await outcome(api, "ack", message) == (200, "applied")
    pass_time(60)
    await step(gateway)

    assert (pending["state"], firing["state"], firing["value"]) == ("pending", "firing", 5)
    assert receiver.titles == ["[FIRING] backlog count: group workers", "[RESOLVED] backlog count: group workers"]
    assert await items(api, "") == []
    assert [item["title"] for item in await items(api, "/inbox")] == receiver.titles[::-1]
    (closed,) = await items(api, "/history")
    assert (closed["id"], closed["state"]) == (firing["id"], "resolved")


async def test_the_webhook_is_signed_and_lists_the_alarm(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, receiver: WebhookReceiver
) -> None:
    """The receiver can trust it, and find the group without another request."""
    await shop(api)
    await watch_backlog(api, 0, "0s")
    await add_channel(api, receiver)
    await publish(api, "x")

    await step(gateway)

    (request,) = receiver.requests
    signed = request.headers["mqgate-timestamp"].encode() + b"." + request.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert request.headers["mqgate-signature"] == f"v1={expected}"
    (alarm,) = request.json["alarms"]
    assert (alarm["rule"], alarm["subject"], alarm["value"]) == ("backlog_count", "workers", 1)


async def test_a_group_that_nobody_consumes_is_reported(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, pass_time: PassTime
) -> None:
    """Its backlog may still be small. A group without messages needs no consumer."""
    await shop(api)
    await put(api, "groups/idle", topic="orders", start="latest")
    await put(api, "alarms/rules/no_consumer", threshold=30, **{"for": 0})
    await step(gateway)
    await publish(api, "x")
    await take(api, group="idle")
    await step(gateway)
    before = await items(api, "?rule=no_consumer")

    # The broker dates messages by its own clock, which is ahead of the clock of this test.
    pass_time(365 * 86_400 * 10)
    await step(gateway)

    assert before == []
    assert "workers" in {alarm["subject"] for alarm in await items(api, "?rule=no_consumer")}


async def test_a_dead_letter_fires_at_once(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, receiver: WebhookReceiver
) -> None:
    """A message that failed permanently needs a person."""
    await shop(api, maxAttempts=1)
    await add_channel(api, receiver)
    await publish(api, "poison")
    (message,) = await take(api)
    await outcome(api, "nack", message)

    await step(gateway)

    assert receiver.titles == ["[FIRING] dead letters: group workers"]


async def test_a_silence_delays_the_notification(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, receiver: WebhookReceiver, clock: ManualClock
) -> None:
    """During maintenance the alarm is shown, but calls nobody."""
    await shop(api)
    await watch_backlog(api, 0, "0s")
    await add_channel(api, receiver)
    await publish(api, "x")
    ends_at = clock() + 3_600_000
    created = await api.post("/v1/alarms/silences", json={"subject": "workers", "endsAt": ends_at, "reason": "upgrade"})

    await step(gateway)
    shown, silent = await items(api, ""), list(receiver.requests)
    await api.delete(f"/v1/alarms/silences/{created.json()['id']}")
    await step(gateway)

    assert created.status_code == 201
    assert [alarm["state"] for alarm in shown] == ["firing"]
    assert silent == []
    assert receiver.titles == ["[FIRING] backlog count: group workers"]


async def test_the_lag_of_groups_is_a_metric(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """Dashboards show it, and a deleted group leaves no series behind."""
    await shop(api)
    await put(api, "groups/others", topic="orders")
    await publish(api, *range(3))

    await step(gateway)
    text = (await api.get("/metrics")).text
    await api.delete("/v1/groups/others")
    await step(gateway)
    after = (await api.get("/metrics")).text

    assert 'mqgate_group_lag{group="workers"} 3.0' in text
    assert 'mqgate_group_oldest_age_seconds{group="workers"}' in text
    assert 'mqgate_group_lag{group="others"} 3.0' in text
    assert 'mqgate_group_lag{group="others"}' not in after


async def test_the_lag_of_a_broadcast_group_is_the_sum_over_its_clients(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """Each client has its own backlog."""
    await shop(api)
    await put(api, "groups/all", topic="orders", mode="broadcast")
    for client in ("a", "b"):
        await receive(api, "all", clientId=client)
    await publish(api, *range(3))

    await step(gateway)

    assert 'mqgate_group_lag{group="all"} 6.0' in (await api.get("/metrics")).text


async def test_scheduled_messages_that_are_overdue_are_reported(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, pass_time: PassTime
) -> None:
    """The dispatcher may be stuck on every gateway. Here it sleeps by the real clock."""
    await shop(api)
    await put(api, "alarms/rules/late_timers", **{"for": 0})
    scheduled = await api.post("/v1/topics/orders/messages", json={"body": "x", "delay": "1h"})
    await step(gateway)
    before = await items(api, "")

    pass_time(3_600 + 61)
    await step(gateway)

    (alarm,) = await items(api, "?rule=late_timers")
    assert scheduled.status_code == 202
    assert before == []
    assert (alarm["subject"], alarm["state"]) == ("", "firing")
    assert alarm["value"] >= 61


async def test_pipelines_that_failed_or_are_behind_are_reported(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, settings: Settings
) -> None:
    """They run elsewhere, and store their state with the statistics. One that was stopped is no failure."""
    for rule in ("pipeline_failed", "pipeline_behind"):
        await put(api, f"alarms/rules/{rule}", **{"for": 0})
    rows = [
        ("minutes", 0, "running", 1, 1, 1.0, 200_000, 0, None),
        ("archive", 0, "failed", 1, 1, 1.0, 0, 3, "the disk is full"),
        ("tidy", 0, "stopped", None, None, None, None, 0, None),
    ]
    await asyncio.to_thread(lambda: open_stats(settings, is_writing=True).put({"pipelines": rows}))

    await step(gateway)

    found = {(alarm["rule"], alarm["subject"]) for alarm in await items(api, "")}
    assert found == {("pipeline_failed", "archive"), ("pipeline_behind", "minutes")}
