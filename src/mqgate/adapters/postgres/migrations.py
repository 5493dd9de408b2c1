"""Schema migrations: numbered files that one gateway applies at its start while the others wait.

A file only adds columns with a default, tables and indexes, so that gateways of the previous release can run at the
same time. Unused columns are dropped one release later. A gateway does not start on a newer schema version than its
own.
"""

from collections.abc import Sequence
from datetime import timedelta

from mqgate.adapters.postgres.connections import Connection
from mqgate.core.errors import StorageRefused
from mqgate.sql_files import SchemaFile

__all__ = ["migrate"]

# Another gateway may be building a large index. No requests are served yet.
_TIMEOUT = timedelta(minutes=10)


async def migrate(connection: Connection, schema: str, wanted: Sequence[SchemaFile]) -> int:
    """Apply missing files in one transaction and return their number. Raise StorageRefused if the schema is newer."""
    await _check_encoding(connection)
    if await _schema_version(connection, schema, wanted) == len(wanted):
        return 0
    timeout = str(_TIMEOUT // timedelta(milliseconds=1))
    async with connection.transaction():
        for name in ("statement_timeout", "lock_timeout"):
            await connection.execute(b"SELECT set_config(%s, %s, true)", (name, timeout))
        await connection.execute(b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"mqgate {schema}",))
        version = await _schema_version(connection, schema, wanted)
        if not version:
            await _create_schema(connection, schema)
        for script in wanted[version:]:
            await connection.execute(script.sql.encode())
        await connection.execute(b"UPDATE layout SET number = %s", (len(wanted),))
    return len(wanted) - version


async def _create_schema(connection: Connection, schema: str) -> None:
    # IF NOT EXISTS would require the right to create even if the schema exists.
    found = await connection.execute(b"SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,))
    if await found.fetchone() == (0,):
        await connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
    await connection.execute(b"CREATE TABLE layout (number integer NOT NULL)")
    await connection.execute(b"INSERT INTO layout VALUES (0)")


async def _schema_version(connection: Connection, schema: str, wanted: Sequence[SchemaFile]) -> int:
    # Check only this schema: the search path may still resolve to another one if the schema was just created.
    found = await connection.execute(
        b"SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'layout'", (schema,)
    )
    if await found.fetchone() == (0,):
        return 0
    row = await (await connection.execute(b"SELECT number FROM layout")).fetchone()
    version = int(row[0]) if row else 0
    if version > len(wanted):
        raise StorageRefused(
            f"the tables in PostgreSQL have schema version {version}, this mqgate supports {len(wanted)}: upgrade it"
        )
    return version


async def _check_encoding(connection: Connection) -> None:
    row = await (await connection.execute(b"SHOW server_encoding")).fetchone()
    if row is None or row[0] != "UTF8":
        raise StorageRefused(f"the encoding of the database is {row and row[0]}: use a database with UTF8")
