"""SQL statements, generated from the table definitions.

SQLite and PostgreSQL use the same statements, except for placeholders and types.
"""

from collections.abc import Iterator

from mqgate.sql_files import query_text
from mqgate.stats.tables import NUMBERS, TABLES, TEXTS, Merge, Table

__all__ = ["create", "insert", "query", "quoted"]


def quoted(*columns: str) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def create() -> Iterator[str]:
    """Yield the statements that create missing tables and indexes."""
    yield "CREATE TABLE IF NOT EXISTS stats_layout (number BIGINT NOT NULL)"
    for table in TABLES.values():
        columns = [f'"{name}" {_type(name)}{" NOT NULL" if name in table.keys else ""}' for name in table.columns]
        yield f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({', '.join(columns)}, PRIMARY KEY ({quoted(*table.keys)}))"
        if table.keys[0] != "at" and "at" in table.columns:
            yield f"CREATE INDEX IF NOT EXISTS {table.sql_name}_at ON {table.sql_name} (at)"


def insert(table: Table) -> str:
    """Return the statement that inserts a row with the merge rule of the table."""
    name = table.sql_name
    marks = ", ".join("?" * len(table.columns))
    begin = f"INSERT INTO {name} ({quoted(*table.columns)}) VALUES ({marks}) ON CONFLICT ({quoted(*table.keys)})"  # noqa: S608 - our own names
    if table.merge is Merge.KEEP:
        return f"{begin} DO NOTHING"
    added = f"{name}." if table.merge is Merge.ADD else ""
    changes = ", ".join(f'"{c}" = ' + (f'{added}"{c}" + ' if added else "") + f'excluded."{c}"' for c in table.values)
    instant = table.values[0]
    condition = f' WHERE excluded."{instant}" >= {name}."{instant}"' if table.merge is Merge.LATEST else ""
    return f"{begin} DO UPDATE SET {changes}{condition}"


def query(name: str) -> str:
    """Return a statement of queries/ by its file name."""
    return query_text("mqgate.stats", name)


def _type(column: str) -> str:
    if column in TEXTS:
        return "TEXT"
    return "DOUBLE PRECISION" if column in NUMBERS else "BIGINT"
