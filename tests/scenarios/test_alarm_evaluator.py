"""Two gateways on PostgreSQL: one evaluates, and its alarms outlive it, the store and the channels."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from alarm_calls import add_channel, by_hand, items, step, watch_backlog
from message_calls import publish, put
from sides import Side, opened

from mqgate.control.alerts.model import Readings
from mqgate.core.alarms import GatewayReport, RuleName
from mqgate.settings import AlarmsSettings, ControlSettings, PostgresSettings, Settings
from mqgate.stack import Stack
from mqgate.testing.clock import ManualClock
from webhook_receiver import WebhookReceiver, webhook_receiver

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as receiver:
        yield receiver


@pytest.fixture
async def pair_of_gateways(shared: Settings, tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[Side, Side]]:
    """Two gateways by one clock; their messages are their own, their control data is shared."""
    settings = by_hand(shared)
    async with opened(settings, tmp_path / "a", clock) as a, opened(settings, tmp_path / "b", clock) as b:
        yield a, b


async def _firing(a: Side, receiver: WebhookReceiver) -> None:
    """Let an alarm fire at gateway `a`."""
    await put(a.api, "topics/orders", queues=1)
    await put(a.api, "groups/workers", topic="orders")
    await watch_backlog(a.api, 0, "0s")
    await add_channel(a.api, receiver)
    await publish(a.api, "x")
    await step(a.gateway)


async def test_one_gateway_evaluates(pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver) -> None:
    """The alarm is sent once, and both gateways show it. Only one exports the lag."""
    a, b = pair_of_gateways
    await _firing(a, receiver)

    for _ in range(3):
        await step(b.gateway)
        await step(a.gateway)

    assert receiver.titles == ["[FIRING] backlog count: group workers"]
    assert [alarm["state"] for alarm in await items(b.api, "")] == ["firing"]
    assert "mqgate_group_lag{" in (await a.api.get("/metrics")).text
    assert "mqgate_group_lag{" not in (await b.api.get("/metrics")).text


async def test_another_gateway_takes_over_within_30_seconds(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver, clock: ManualClock
) -> None:
    """The evaluator is killed: it releases nothing. The alarm that it announced is not announced again."""
    a, b = pair_of_gateways
    await _firing(a, receiver)
    before = await items(b.api, "")

    seconds = 0
    while b.gateway.alarms.lease.term is None:
        clock.advance(5)
        seconds += 5
        await step(b.gateway)

    assert seconds <= 30
    assert receiver.titles == ["[FIRING] backlog count: group workers"]
    # The new evaluator continues the alarm: it announces the recovery under the same id.
    await put(b.api, "alarms/rules/backlog_count", enabled=False)
    clock.advance(5)
    await step(b.gateway)
    assert receiver.titles[1:] == ["[RESOLVED] backlog count: group workers"]
    assert receiver.requests[1].json["alarms"][0]["id"] == before[0]["id"]
    # The old evaluator was only slow. It notices, and sends nothing.
    await a.gateway.alarms.evaluator.run_once()
    await step(a.gateway)
    assert len(receiver.requests) == 2
    assert a.gateway.alarms.lease.term is None


async def test_a_killed_evaluator_costs_at_most_one_repetition(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed after it sent and before it stored the result. The next one repeats under the same id."""
    a, b = pair_of_gateways
    store = a.gateway.alarms.evaluator._store
    save, saves = store.save, 0

    async def killed_at_the_second(*arguments: object) -> bool:
        nonlocal saves
        saves += 1
        if saves == 2:
            raise asyncio.CancelledError
        return await save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "save", killed_at_the_second)
    with pytest.raises(asyncio.CancelledError):
        await _firing(a, receiver)
    clock.advance(15)

    await step(b.gateway)
    await step(b.gateway)

    first, second = (request.json for request in receiver.requests if request.json["kind"] == "firing")
    assert first == second


async def test_a_holder_that_cannot_extend_its_lease_announces_only_the_outage(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver
) -> None:
    """Another gateway may have the lease, and announces everything else."""
    a, _ = pair_of_gateways
    lease = a.gateway.alarms.lease
    await _firing(a, receiver)
    await put(a.api, "groups/others", topic="orders")

    lease._steady = lambda: time.monotonic() + 60
    await a.gateway.alarms.evaluator.run_once()
    during, shown = len(receiver.requests), await items(a.api, "?state=firing")
    lease._steady = time.monotonic
    await step(a.gateway)
    alarms = await items(a.api, "?state=firing")

    assert during == 1
    assert {alarm["subject"] for alarm in shown} == {"workers"}
    assert {alarm["subject"] for alarm in alarms} == {"workers", "others"}


async def test_an_evaluation_that_fails_does_not_end_the_alarms(
    shared: Settings, tmp_path: Path, receiver: WebhookReceiver
) -> None:
    """The services run by themselves, and a defect in one evaluation is logged."""
    often = replace(shared, alarms=AlarmsSettings(interval=timedelta(seconds=1)))
    async with opened(often, tmp_path / "a") as a:
        evaluator = a.gateway.alarms.evaluator
        collect, failures = evaluator._collect, 0

        async def fail_twice(report: GatewayReport) -> Readings:
            nonlocal failures
            failures += 1
            if failures <= 2:
                raise ZeroDivisionError
            return await collect(report)

        evaluator._collect = fail_twice
        await put(a.api, "topics/orders", queues=1)
        await put(a.api, "groups/workers", topic="orders")
        await watch_backlog(a.api, 0, "0s")
        await add_channel(a.api, receiver)
        await publish(a.api, "x")

        async with asyncio.timeout(60):
            while not receiver.requests:  # noqa: ASYNC110 - the receiver is a thread
                await asyncio.sleep(0.05)

    assert failures > 2
    assert receiver.titles == ["[FIRING] backlog count: group workers"]


async def test_a_stopped_evaluator_is_replaced_at_once(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver
) -> None:
    """A rolling restart leaves no gap."""
    a, b = pair_of_gateways
    await _firing(a, receiver)

    await a.gateway.alarms.lease.stop()
    await step(b.gateway)

    assert b.gateway.alarms.lease.term is not None


async def test_a_channel_that_is_down_for_a_minute_gets_the_notification(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver, clock: ManualClock
) -> None:
    """It is retried and shown meanwhile, and the notification arrives once."""
    a, b = pair_of_gateways
    receiver.status = 503
    await _firing(a, receiver)
    for _ in range(12):
        clock.advance(5)
        await step(a.gateway)
    (down,) = await items(b.api, "/channels")
    refused = receiver.refused
    metrics = (await a.api.get("/metrics")).text
    receiver.status = 200
    clock.advance(60)
    await step(a.gateway)
    (up,) = await items(b.api, "/channels")

    assert (down["pending"], down["error"], down["lastSentAt"]) == (1, "HTTP status 503", None)
    assert refused == 3
    assert 'mqgate_alarm_channel_up{channel="ops"} 0.0' in metrics
    assert receiver.titles == ["[FIRING] backlog count: group workers"]
    assert (up["pending"], up["error"]) == (0, None)


async def test_the_next_evaluator_sends_what_a_channel_has_not_accepted(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver, clock: ManualClock
) -> None:
    """What waits for a channel is stored, with its pause."""
    a, b = pair_of_gateways
    receiver.status = 503
    await _firing(a, receiver)
    receiver.status = 200
    clock.advance(15)

    await step(b.gateway)

    assert receiver.titles[0] == "[FIRING] backlog count: group workers"
    assert receiver.requests[0].json["id"] == (await items(b.api, "/inbox"))[-1]["id"]


async def test_a_thousand_alarms_at_once_are_a_few_notifications(
    pair_of_gateways: tuple[Side, Side], receiver: WebhookReceiver, clock: ManualClock
) -> None:
    """Grouped and bounded: one message of limited size when they fire, one when they recover."""
    a, b = pair_of_gateways
    await add_channel(a.api, receiver)
    backlog = {f"group-{number}": 20_000.0 for number in range(1_000)}

    async def collect(_: object) -> dict[RuleName, dict[str, float]]:
        return {RuleName.BACKLOG_COUNT: dict(backlog)}

    a.gateway.alarms.evaluator._collect = collect  # type: ignore[assignment]
    await step(a.gateway)
    clock.advance(300)
    await step(a.gateway)
    shown = await items(b.api, "")
    backlog = dict.fromkeys(backlog, 0.0)
    clock.advance(60)
    await step(a.gateway)

    assert [request.json["count"] for request in receiver.requests] == [1_000, 1_000]
    assert max(len(request.body) for request in receiver.requests) < 10_000
    assert len(shown) == 1_000
    assert {alarm["state"] for alarm in shown} == {"firing"}
    assert await items(b.api, "") == []


@pytest.mark.slow
async def test_the_outage_of_the_control_store_is_reported_while_it_lasts(
    settings: Settings, mortal: Stack, tmp_path: Path, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """The last evaluator continues in memory, sends the alarm once, and stores everything after the restart."""
    schema = f"test_{uuid4().hex}"
    own = PostgresSettings(url=mortal.postgres_url, schema=schema)
    shared = replace(by_hand(settings), control=ControlSettings(engine="postgres"), postgres=own)
    async with opened(shared, tmp_path / "a", clock) as a:
        await add_channel(a.api, receiver)
        await step(a.gateway)
        await asyncio.to_thread(mortal.stop, "postgres", patience=0.0)
        try:
            await step(a.gateway)
            clock.advance(60)
            await step(a.gateway)
            during = list(receiver.titles)
        finally:
            await asyncio.to_thread(mortal.start, "postgres")
        await _until_ready(a.api)
        clock.advance(60)
        await step(a.gateway)

        assert during == ["[FIRING] postgres unreachable: deployment"]
        assert receiver.titles == [*during, "[RESOLVED] postgres unreachable: deployment"]
        assert [item["title"] for item in await items(a.api, "/inbox")] == receiver.titles[::-1]
        assert [alarm["state"] for alarm in await items(a.api, "/history")] == ["resolved"]
        (channel,) = await items(a.api, "/channels")
        assert channel["pending"] == 0
    async with await psycopg.AsyncConnection.connect(mortal.postgres_url, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


async def _until_ready(api: httpx.AsyncClient) -> None:
    while (await api.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - every check is a query
        await asyncio.sleep(0.05)
