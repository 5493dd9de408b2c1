"""PostgreSQL as a gateway uses it: opened, its tables up to date, this gateway seen; and all of it left in order."""

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from mqgate.adapters.postgres.clock import ServerClock
from mqgate.adapters.postgres.connections import Timeouts
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.presence import Presence

__all__ = ["Postgres", "open_postgres"]


class Postgres(NamedTuple):
    """`clock` is the one that due times are judged by."""

    database: Database
    presence: Presence
    clock: ServerClock


@contextlib.asynccontextmanager
async def open_postgres(
    url: str,
    *,
    schema: str = "mqgate",
    least: int = 1,
    most: int = 8,
    timeouts: Timeouts | None = None,
    lease: timedelta = timedelta(seconds=5),
    now: Callable[[], datetime | None] = lambda: None,
) -> AsyncIterator[Postgres]:
    """Open it, or raise what is wrong with it. At the end this gateway's claims are anybody's."""
    database = Database(url, schema=schema, least=least, most=most, timeouts=timeouts, now=now)
    await database.open()
    try:
        presence = Presence(database, lease=lease, interval=lease / 5)
        await presence.run_once()
        presence.start()
        try:
            yield Postgres(database, presence, presence.clock)
        finally:
            await presence.stop()
    finally:
        await database.close()
