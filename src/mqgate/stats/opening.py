"""Opens the store where the settings say."""

from pathlib import Path

from mqgate.core.errors import FiguresNotFound, StorageRefused
from mqgate.settings import Settings
from mqgate.stats.sqlite import SqliteDatabase
from mqgate.stats.store import Database, StatsStore

__all__ = ["FILE", "open_stats"]

FILE = "stats.sqlite3"


def open_stats(settings: Settings, *, is_writing: bool) -> StatsStore:
    """The store, made if it is to be written; FiguresNotFound: no pipeline has written anything yet."""
    if settings.stats.engine == "postgres":
        try:
            from mqgate.stats.postgres import PostgresDatabase  # noqa: PLC0415 - with it comes psycopg, an extra
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
