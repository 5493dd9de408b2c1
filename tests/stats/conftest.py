"""Fixtures: a statistics store on each of the two databases."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from mqgate.stats.postgres import PostgresDatabase
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import Database, StatsStore


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield SqliteDatabase(tmp_path / "stats.sqlite3", is_writing=True)
        return
    url, schema = request.getfixturevalue("postgres").postgres_url, f"test_{uuid4().hex}"
    yield PostgresDatabase(url, schema)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


@pytest.fixture
def store(database: Database) -> StatsStore:
    return StatsStore(database, is_writing=True)
