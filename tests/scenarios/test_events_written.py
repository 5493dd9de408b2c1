"""How events are written: numbered, repeated only under the same number, and protected from users."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from message_calls import metric, publish, put, refused, shop
from outage import Outage

from event_log import Batch, batches, events
from eventually import until
from mqgate import bootstrap
from mqgate.core.events import EVENTS_TOPIC
from mqgate.core.message import slot_of
from mqgate.settings import EventsSettings, Settings
from mqgate.testing.clock import ManualClock
from mqgate.testing.server_process import ServerProcess

TOPIC = f"/v1/topics/{EVENTS_TOPIC}"
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@asynccontextmanager
async def opened(settings: Settings, clock: ManualClock) -> AsyncIterator[tuple[bootstrap.Gateway, httpx.AsyncClient]]:
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield gateway, api


def numbers(found: list[Batch]) -> list[list[int]]:
    """Return the numbers of each incarnation, in the order in which they are read."""
    return [[batch.sequence for batch in group] for _, group in groupby(found, lambda batch: batch.incarnation)]


async def test_an_idle_gateway_writes_no_events(settings: Settings, clock: ManualClock) -> None:
    """It does not even record its stop. But the topic exists from the start, so that readers can subscribe."""
    for _ in range(2):
        async with opened(settings, clock) as (gateway, api):
            await put(api, "topics/orders", queues=1)

            async def is_there(api: httpx.AsyncClient = api) -> bool:
                return (await api.get(f"{TOPIC}/queues")).status_code == 200

            await until(is_there)
            await gateway.events.run_once()
            await gateway.lag_samples.run_once()

    async with opened(settings, clock) as (_, api):
        assert await batches(api) == []


async def test_a_clean_stop_writes_the_remaining_events_and_a_last_batch(
    settings: Settings, clock: ManualClock
) -> None:
    """Readers learn that nothing is missing, also if there was nothing left to write."""
    async with opened(settings, clock) as (gateway, api):
        await shop(api)
        await publish(api, "a")
        await gateway.events.run_once()
        await publish(api, "b")
    async with opened(settings, clock) as (gateway, api):
        await publish(api, "c")
        await gateway.events.run_once()

    async with opened(settings, clock) as (_, api):
        found = await batches(api)

    assert numbers(found) == [[1, 2], [1, 2]]
    assert [batch.is_last for batch in found] == [False, True] * 2
    assert [len(batch.rows) for batch in found] == [1, 1, 1, 0]
    assert {(batch.key, batch.dropped) for batch in found} == {(found[0].properties["gateway"], 0)}


async def test_an_idle_gateway_writes_one_idle_batch(settings: Settings, clock: ManualClock) -> None:
    """Without it readers could not distinguish the gateway from a killed one. New events follow at once."""
    async with opened(settings, clock) as (gateway, api):
        await shop(api)
        await publish(api, "a")
        await gateway.events.run_once()
        for _ in range(3):
            clock.advance(timedelta(seconds=4))
            await gateway.events.run_once()
        await publish(api, "b")

        async def is_written() -> bool:
            return len(await batches(api)) >= 3

        await until(is_written)
        found = await batches(api)

    assert [(len(batch.rows), batch.properties.get("last")) for batch in found] == [(1, None), (0, "so_far"), (1, None)]


@on_sqlite
async def test_a_batch_without_a_response_is_sent_again_with_its_number(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """It may be stored twice. Readers keep one of the two."""
    await shop(api)
    outage = unresponsive(gateway)
    outage.is_stored = True
    await publish(api, "a")

    first = await gateway.events.run_once()
    await publish(api, "b")
    clock.advance(1)
    outage.end()
    second = await gateway.events.run_once()

    found = await batches(api)
    assert (first, second) == (False, True)
    assert [batch.sequence for batch in found] == [1, 1, 2]
    assert found[0].rows == found[1].rows
    assert int(found[1].properties["sent_at"]) - int(found[0].properties["sent_at"]) == 1_000


def unresponsive(gateway: bootstrap.Gateway) -> Outage:
    """Make the brokers of the events topic stop responding."""
    outage = Outage(gateway)
    outage.silent |= {f"{EVENTS_TOPIC}/local:{number}" for number in range(4)}
    return outage


@on_sqlite
async def test_events_beyond_the_buffer_limit_are_dropped_and_counted(settings: Settings, clock: ManualClock) -> None:
    """The numbers have no gap. The next batch and the metrics report how many were dropped."""
    async with opened(replace(settings, events=EventsSettings(max_buffered=4)), clock) as (gateway, api):
        await shop(api)
        outage = unresponsive(gateway)
        for body in ("a", "b", "c"):
            await publish(api, body)
            assert await gateway.events.run_once() is False
        await publish(api, "d", "e")
        await publish(api, "f")
        outage.end()

        assert await gateway.events.run_once() is True
        await publish(api, "g")
        await gateway.events.run_once()

        found = await batches(api)
        assert [(batch.sequence, len(batch.rows), batch.dropped) for batch in found] == [
            (1, 1, 2),
            (2, 3, 2),
            (3, 1, 2),
        ]
        assert [row["offset"] for row in await events(api, "published")] == [0, 1, 2, 5, 6]
        assert await metric(api, "mqgate_events_dropped_total") == 2
        assert await metric(api, "mqgate_events_total") == 5


@on_sqlite
async def test_a_gateway_with_events_disabled_has_no_topic(settings: Settings, clock: ManualClock) -> None:
    """Disabled events cost nothing, and the response explains why there are none."""
    async with opened(replace(settings, events=EventsSettings(enabled=False)), clock) as (_, api):
        await shop(api)
        await publish(api, "a")

        refused(await api.get(f"{TOPIC}/queues"), 404, "topic_not_found")


async def test_the_events_topic_is_read_only_for_users(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """It is in no list, and cannot be published to, changed, consumed or deleted."""
    await put(api, "topics/orders", queues=1)
    await publish(api, "a")
    await gateway.events.run_once()

    refused(await api.put(TOPIC, json={"queues": 9}), 400, "invalid_value")
    refused(await api.get(TOPIC), 404, "topic_not_found")
    refused(await api.post(f"{TOPIC}/messages", json={"body": "x"}), 404, "topic_not_found")
    refused(await api.delete(TOPIC), 404, "topic_not_found")
    refused(await api.put("/v1/groups/spy", json={"topic": EVENTS_TOPIC}), 404, "topic_not_found")
    refused(await api.put("/v1/producers/spy", json={"topic": EVENTS_TOPIC}), 404, "topic_not_found")
    refused(await api.get("/v1/topics/mqgate_retry_x/queues"), 404, "topic_not_found")
    listed = [entry["name"] for entry in (await api.get("/v1/topics")).json()["items"]]
    queue = f"local:{slot_of((await batches(api))[0].key) % 4}"
    arrow = await api.get(f"{TOPIC}/queues/{queue}/messages", headers={"Accept": "application/vnd.apache.arrow.stream"})

    await gateway.events.run_once()
    assert listed == ["orders"]
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 1
    assert {row["topic"] for row in await events(api)} == {"orders"}


@on_sqlite
async def test_only_an_admin_can_read_the_events_topic(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """It names all topics, groups and clients, which a producer key must not show."""
    await put(api, "topics/orders", queues=1)
    await put(api, "producers/till", topic="orders")
    await gateway.events.run_once()
    admin = bearer((await api.post("/v1/keys", json={"role": "admin"})).json()["key"])
    till = bearer((await api.post("/v1/keys", json={"producer": "till"}, headers=admin)).json()["key"])

    statuses = [(await api.get(f"{TOPIC}/queues", headers=key)).status_code for key in (admin, till)]

    assert statuses == [200, 403]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@on_sqlite
async def test_events_are_deleted_by_retention(settings: Settings, clock: ManualClock) -> None:
    """They must not fill the disk of a gateway whose events are not read."""
    async with opened(replace(settings, events=EventsSettings(retention=timedelta(hours=1))), clock) as (gateway, api):
        assert gateway.retention is not None
        await shop(api)
        await publish(api, "a")
        await gateway.events.run_once()
        clock.advance(1800)
        await publish(api, "b")
        await gateway.events.run_once()
        clock.advance(1801)

        await gateway.retention.run_once()

        found = await api.get(f"{TOPIC}/queues/local:{slot_of(gateway.events._gateway) % 4}/messages?offset=1")
        assert (found.json()["min"], len(found.json()["messages"])) == (1, 1)


async def test_a_killed_gateway_leaves_a_prefix_without_a_gap(tmp_path: Path, environment: dict[str, str]) -> None:
    """Only the unwritten events are missing, and no batch claims to be the last."""
    server = ServerProcess(
        tmp_path / "killed", MQGATE_LOGGING_LEVEL="error", MQGATE_EVENTS_FLUSH_INTERVAL="0.05", **environment
    )
    await asyncio.to_thread(server.start)
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as api:
        await shop(api)
        ids: list[str] = []

        async def has_written() -> bool:
            ids.extend(message["id"] for message in await publish(api, "a", "b"))
            return len(await batches(api)) >= 4

        await until(has_written)
        await publish(api, "unknown")
        server.kill()
        await asyncio.to_thread(server.start)
        ids += [message["id"] for message in await publish(api, "c")]
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        found = await batches(api)
        server.kill()

    ids_by_batch = [[row["id"] for row in batch.rows if row["kind"] == "published"] for batch in found]
    killed = [row for batch, row in zip(found, ids_by_batch, strict=True) if batch.incarnation == found[0].incarnation]
    before = [message_id for batch_ids in killed for message_id in batch_ids]
    assert numbers(found) == [list(range(1, len(killed) + 1)), list(range(1, len(found) - len(killed) + 1))]
    assert [batch.is_last for batch in found] == [False] * (len(found) - 1) + [True]
    assert len(before) >= 4
    assert before[: len(ids) - 1] == ids[:-1][: len(before)]
    assert [message_id for batch_ids in ids_by_batch[len(killed) :] for message_id in batch_ids] == ids[-1:]
