"""The tables, as numbered files: applied at the start, by one gateway while the others wait.

A file only adds (columns with a default, tables, indexes), so that gateways of the release before go on beside us; what
nobody uses any more goes a release later. A database that is ahead of us was made by a newer release: we do not start.
"""

from collections.abc import Sequence
from datetime import timedelta
from importlib import resources
from typing import NamedTuple

from mqgate.adapters.postgres.connections import Connection
from mqgate.core.errors import StorageRefused

__all__ = ["Script", "migrate", "scripts"]

# Others may be making a large index; nobody serves yet.
_PATIENCE = timedelta(minutes=10)


class Script(NamedTuple):
    name: str
    sql: bytes


def scripts() -> Sequence[Script]:
    """The schema files in their order."""
    files = resources.files(__package__).joinpath("schema").iterdir()
    return sorted(Script(each.name, each.read_bytes()) for each in files)


async def migrate(connection: Connection, schema: str, wanted: Sequence[Script]) -> int:
    """Apply the files that this database has not seen, all or none; how many. StorageRefused if it is ahead of us."""
    await _check_encoding(connection)
    if await _done(connection, schema, wanted) == len(wanted):
        return 0
    patience = str(_PATIENCE // timedelta(milliseconds=1))
    async with connection.transaction():
        for name in ("statement_timeout", "lock_timeout"):
            await connection.execute(b"SELECT set_config(%s, %s, true)", (name, patience))
        await connection.execute(b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"mqgate {schema}",))
        done = await _done(connection, schema, wanted)
        if not done:
            await _create_schema(connection, schema)
        for script in wanted[done:]:
            await connection.execute(script.sql)
        await connection.execute(b"UPDATE layout SET number = %s", (len(wanted),))
    return len(wanted) - done


async def _create_schema(connection: Connection, schema: str) -> None:
    # Not IF NOT EXISTS: it asks for the right to create even where there is nothing to do.
    found = await connection.execute(b"SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,))
    if await found.fetchone() == (0,):
        await connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
    await connection.execute(b"CREATE TABLE layout (number integer NOT NULL)")
    await connection.execute(b"INSERT INTO layout VALUES (0)")


async def _done(connection: Connection, schema: str, wanted: Sequence[Script]) -> int:
    # Only our own schema counts, and what the search path was before it came to be may still be remembered.
    found = await connection.execute(
        b"SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'layout'", (schema,)
    )
    if await found.fetchone() == (0,):
        return 0
    row = await (await connection.execute(b"SELECT number FROM layout")).fetchone()
    done = int(row[0]) if row else 0
    if done > len(wanted):
        raise StorageRefused(
            f"PostgreSQL's tables were made by a newer mqgate (layout {done}, ours is {len(wanted)}): upgrade this one"
        )
    return done


async def _check_encoding(connection: Connection) -> None:
    row = await (await connection.execute(b"SHOW server_encoding")).fetchone()
    if row is None or row[0] != "UTF8":
        raise StorageRefused(f"the database is encoded in {row and row[0]}: mqgate needs one in UTF8")
