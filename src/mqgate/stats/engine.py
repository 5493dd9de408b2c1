"""Opens the statistics store of the configured engine."""

from pathlib import Path

from mqgate.core.errors import FiguresNotFound, StorageRefused
from mqgate.settings import Settings
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import Database, StatsStore

__all__ = ["FILE", "open_stats"]

FILE = "stats.sqlite3"


def open_stats(settings: Settings, *, is_writing: bool) -> StatsStore:
    """Open the store and create it if it is opened for writing.

    Raise FiguresNotFound if the store is opened for reading and no pipeline has written to it yet.
    """
    if settings.stats.engine == "postgres":
        try:
            from mqgate.stats.postgres import PostgresDatabase  # noqa: PLC0415 - imports psycopg, an extra
        except ModuleNotFoundError as error:
            raise StorageRefused('[stats] engine postgres needs a driver: pip install "mqgate[postgres]"') from error
        postgres = settings.postgres
        timeout = postgres.connect_timeout.total_seconds()
        database: Database = PostgresDatabase(postgres.url, postgres.schema, connect_timeout=timeout)
    else:
        path = Path(settings.sqlite.directory, FILE)
        if is_writing:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise FiguresNotFound(f"there is no {FILE} in the data directory: start `mqgate pipeline run`")
        database = SqliteDatabase(path, is_writing=is_writing)
    return StatsStore(database, is_writing=is_writing)
