"""The commands on the page about PostgreSQL work."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from doc_pages import ROOT, blocks

from mqgate import bootstrap
from mqgate.settings import ControlSettings, PostgresSettings, Settings, SqliteSettings
from mqgate.stack import Stack

PAGE = ROOT / "docs" / "how-to" / "use-postgresql.md"


@pytest.fixture
async def settings(postgres: Stack, tmp_path: Path) -> AsyncIterator[Settings]:
    """Return settings with a schema that belongs to the test."""
    schema = f"test_{uuid4().hex[:8]}"
    yield Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), synchronous="normal"),
        control=ControlSettings(engine="postgres"),
        postgres=PostgresSettings(url=postgres.postgres_url, schema=schema),
    )
    async with await psycopg.AsyncConnection.connect(postgres.postgres_url, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


async def test_a_lost_key_can_be_replaced_without_a_restart(settings: Settings) -> None:
    """Without these lines a lost key would mean a lost registry. Other keys must stay valid."""
    (lines,) = [text for text in blocks(PAGE, "") if "INSERT INTO mqgate.registry" in text]
    own = re.sub(r"mqgate\.registry", f"{settings.postgres.schema}.registry", lines)
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            before = (await api.post("/v1/keys", json={"role": "admin"})).json()["key"]

            shell = await asyncio.create_subprocess_exec(
                "sh",
                "-eu",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={
                    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                    "MQGATE_POSTGRES_URL": settings.postgres.url,
                },
            )
            printed, _ = await shell.communicate(own.encode())
            made = printed.decode().strip()

            for key in (made, before):
                response = await api.get("/v1/keys", headers={"Authorization": f"Bearer {key}"})
                assert response.status_code == 200, response.text
                assert len(response.json()["items"]) == 2
