"""Control data, timers, dead letters and idempotency keys in PostgreSQL, as clients and operators see them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from message_calls import bodies, outcome, publish, shop, take

from mqgate import bootstrap
from mqgate.core.errors import StorageRefused, StorageUnavailable
from mqgate.settings import ControlSettings, PostgresSettings, Settings, SettingsInvalid
from mqgate.stack import Stack
from people import People, bearer

LONG = 20


async def until_ready(api: httpx.AsyncClient) -> None:
    for _ in range(300):
        if (await api.get("/readyz")).status_code == 200:
            return
        await asyncio.sleep(0.1)
    pytest.fail("PostgreSQL is back, and the gateway does not see it")


def on(settings: Settings, stack: Stack, schema: str) -> Settings:
    postgres = PostgresSettings(
        url=stack.postgres_url,
        schema=schema,
        checkout_timeout=timedelta(seconds=0.5),
        statement_timeout=timedelta(seconds=1),
    )
    return replace(settings, control=ControlSettings(engine="postgres"), postgres=postgres)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            yield client


@pytest.fixture
async def own(settings: Settings, postgres: Stack) -> AsyncIterator[Settings]:
    """Return settings with a schema that belongs to the test."""
    schema = f"test_{uuid4().hex}"
    yield on(settings, postgres, schema)
    async with await psycopg.AsyncConnection.connect(postgres.postgres_url, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


async def test_entries_keys_and_timers_survive_a_restart(own: Settings) -> None:
    """They are in PostgreSQL. The data directory of the gateway has only messages and leases."""
    later = {"body": "later", "delay": "1s", "idempotencyKey": "once"}
    async with opened(own) as api:
        await shop(api)
        first = (await api.post("/v1/topics/orders/messages", json=later)).json()

    async with opened(own) as api:
        again = (await api.post("/v1/topics/orders/messages", json=later)).json()
        messages = await take(api, wait=LONG)

        assert again["duplicate"] is True
        assert again["id"] == first["id"]
        assert [(message["id"], message["body"]) for message in messages] == [(first["id"], "later")]


async def test_a_scheduled_message_is_listed_rescheduled_and_cancelled(own: Settings) -> None:
    """Of cancel and delivery exactly one succeeds."""
    async with opened(own) as api:
        await shop(api)
        scheduled = (await api.post("/v1/topics/orders/messages", json={"body": "far", "delay": "1h"})).json()
        path = f"/v1/scheduled/{scheduled['id']}"

        listed = (await api.get("/v1/scheduled", params={"topic": "orders"})).json()["items"]
        moved = await api.patch(path, json={"delay": "2h"})
        cancelled = await api.delete(path)

        assert [message["id"] for message in listed] == [scheduled["id"]]
        assert moved.status_code == 200
        assert cancelled.json()["outcome"] == "cancelled"
        assert (await api.delete(path)).json()["outcome"] == "cancelled"


async def test_a_dead_letter_is_kept_and_redriven(own: Settings) -> None:
    """It keeps its reason and origin, and the redriven message has the same id."""
    async with opened(own) as api:
        await shop(api, maxAttempts=1)
        await publish(api, "poison")
        (message,) = await take(api)
        assert await outcome(api, "nack", message, reason="broken") == (200, "applied")

        (letter,) = (await api.get("/v1/groups/workers/dead-letters")).json()["items"]
        redriven = await api.post("/v1/groups/workers/dead-letters/redrive", json={"all": True})
        (again,) = await take(api, wait=LONG)

        assert (letter["id"], letter["reason"]) == (message["id"], "broken")
        assert redriven.status_code == 200
        assert (again["id"], again["body"]) == (message["id"], "poison")


@pytest.mark.slow
async def test_messages_flow_while_postgresql_is_unavailable(settings: Settings, mortal: Stack) -> None:
    """Publish, receive and ack need none of it. Other calls are refused with a reason and work again later."""
    async with opened(on(settings, mortal, f"test_{uuid4().hex}")) as api:
        await shop(api)
        await asyncio.to_thread(mortal.stop, "postgres", patience=0.0)
        try:
            await publish(api, "meanwhile")
            (message,) = await take(api)
            assert await outcome(api, "ack", message) == (200, "applied")
            delayed = await api.post("/v1/topics/orders/messages", json={"body": "later", "delay": "1s"})
            health = await api.get("/readyz")
        finally:
            await asyncio.to_thread(mortal.start, "postgres")
        await until_ready(api)
        back = await api.post("/v1/topics/orders/messages", json={"body": "later", "delay": "100ms"})

        assert bodies([message]) == ["meanwhile"]
        assert (delayed.status_code, delayed.json()["retryable"]) == (503, True)
        assert health.status_code == 503
        assert "postgres" in str(health.json())
        assert back.status_code == 202
        assert bodies(await take(api, wait=LONG)) == ["later"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"url": "postgresql://127.0.0.1:1/none"}, StorageUnavailable),
        ({"url": "not a url"}, StorageRefused),
    ],
)
async def test_an_unavailable_server_prevents_the_start(
    settings: Settings, change: dict[str, Any], expected: type[Exception]
) -> None:
    """The start fails at once with the reason, not with the first request."""
    postgres = PostgresSettings(connect_timeout=timedelta(seconds=1), **change)

    with pytest.raises(expected):
        async with opened(replace(settings, control=ControlSettings(engine="postgres"), postgres=postgres)):
            pass


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MQGATE_CONTROL_ENGINE": "mysql"}, "[control] engine must be sqlite or postgres"),
        ({"MQGATE_CONTROL_ENGINE": "postgres"}, "[postgres] url is required"),
        ({"MQGATE_POSTGRES_SCHEMA": "My Schema"}, "[postgres] schema must be lower-case"),
        ({"MQGATE_POSTGRES_MAX_CONNECTIONS": "0"}, "[postgres] min_connections must be 1 or more"),
    ],
)
def test_invalid_settings_are_named(variables: dict[str, str], expected: str) -> None:
    """They are reported before anything is opened."""
    with pytest.raises(SettingsInvalid) as refused:
        Settings.load(None, variables)

    assert expected in str(refused.value.faults)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_keys_are_accepted_while_postgres_is_away(settings: Settings, mortal: Stack) -> None:
    """Gateways continue with the last known state. Sessions and unknown keys cannot be checked, and say so."""
    async with opened(on(settings, mortal, f"test_{uuid4().hex}")) as api:
        await shop(api)
        people = People(api)
        await people.admin_key()
        await people.add_person("ada", "member")
        await people.add_key("group", group="workers")
        people.headers["unknown"] = bearer("mqk_000000000000_x")
        await asyncio.to_thread(mortal.stop, "postgres", patience=0.0)
        try:
            statuses = {
                who: (await people.call(who, "POST", "/v1/groups/workers/receive")).status_code
                for who in people.headers
            }
        finally:
            await asyncio.to_thread(mortal.start, "postgres")
        await until_ready(api)

        assert statuses == {"admin": 200, "group": 200, "ada": 503, "unknown": 503}
        assert (await people.call("ada", "GET", "/v1/me")).status_code == 200
        assert (await people.call("unknown", "GET", "/v1/me")).status_code == 401
