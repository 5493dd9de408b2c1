"""PostgreSQL session of a gateway: an open database with current tables, and the heartbeat of the gateway."""

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
    """Open database of a gateway. `clock` is the clock of due times."""

    database: Database
    presence: Presence
    clock: ServerClock


@contextlib.asynccontextmanager
async def open_postgres(
    url: str,
    *,
    schema: str = "mqgate",
    min_size: int = 1,
    max_size: int = 8,
    timeouts: Timeouts | None = None,
    lease: timedelta = timedelta(seconds=5),
    now: Callable[[], datetime | None] = lambda: None,
) -> AsyncIterator[Postgres]:
    """Open the database or raise. On exit, other gateways can take over the claims of this one at once."""
    database = Database(url, schema=schema, min_size=min_size, max_size=max_size, timeouts=timeouts, now=now)
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
