"""PostgreSQL as a gateway opens and leaves it, with the mover on top: two gateways, one of which dies."""

import asyncio
import os
import signal
import sys
from datetime import timedelta

import pytest

from eventually import until
from mqgate.adapters.postgres.opening import Postgres, open_postgres
from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.adapters.postgres.timer_watch import TimerWatch
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.core.message import Draft
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.events.recorder import EventRecorder
from mqgate.ports.timer_store import Timer, TimerState
from mqgate.stack import Stack
from mqgate.telemetry.metrics import Metrics

LEASE = timedelta(seconds=1)
CLAIMS = """
import asyncio, datetime, sys
from mqgate.adapters.postgres.opening import open_postgres
from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.core.message import Draft
from mqgate.ports.timer_store import Timer

async def main():
    async with open_postgres(sys.argv[1], schema=sys.argv[2], lease=datetime.timedelta(seconds=1)) as postgres:
        timers = PostgresTimerStore(postgres.database, postgres.presence)
        past = postgres.clock.now() - datetime.timedelta(seconds=1)
        await timers.add([Timer("orders", Draft(f"m{n}", b"x"), past) for n in range(20)])
        due, _ = await timers.claim(10)
        print(len(due), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def log(engine: Engine) -> SqliteMessageLog:
    """Where the mover puts what is due."""
    log = SqliteMessageLog(engine)
    await log.load()
    await log.create("orders", 1)
    return log


async def ids(log: SqliteMessageLog) -> list[str]:
    return [message.id for message in await log.read("orders", "local:0", 0, 100, 1 << 20)]


async def are_delivered(timers: PostgresTimerStore, *message_ids: str) -> bool:
    found = await asyncio.gather(*map(timers.get, message_ids))
    return all(timer is not None and timer.state is TimerState.DELIVERED for timer in found)


@pytest.fixture
def url(postgres: Stack, schema: str, database: object) -> str:
    """`database` is there to drop the schema."""
    return postgres.postgres_url


def mover_of(postgres: Postgres, log: SqliteMessageLog) -> tuple[TimerDispatcher, TimerWatch]:
    """As a gateway puts them together."""
    timers = PostgresTimerStore(postgres.database, postgres.presence)
    metrics = Metrics()
    mover = TimerDispatcher(
        timers, log, metrics, EventRecorder(metrics, int, max_rows=0, is_on=False), postgres.clock.now
    )

    def abandoned() -> None:
        mover.recover_later()
        mover.planned(postgres.clock.now() - timedelta(days=1))

    watch = TimerWatch(timers, planned=mover.planned, abandoned=abandoned, interval=timedelta(milliseconds=100))
    return mover, watch


async def test_timers_of_a_killed_gateway_are_moved_by_another(url: str, schema: str, log: SqliteMessageLog) -> None:
    """Those it had claimed and those it had only scheduled; what it had sent already is not sent again."""
    names = [f"m{n}" for n in range(20)]
    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLAIMS, url, schema, stdout=asyncio.subprocess.PIPE
    )
    await log.append("orders", [Draft("m0", b"x"), Draft("m1", b"x")])
    async with open_postgres(url, schema=schema, lease=LEASE) as postgres:
        mover, watch = mover_of(postgres, log)
        timers = PostgresTimerStore(postgres.database, postgres.presence)
        claimed = await dying.stdout.readline()

        os.kill(dying.pid, signal.SIGKILL)
        await dying.wait()
        assert claimed == b"10\n"
        mover.start()
        watch.start()
        await until(lambda: are_delivered(timers, *names))
        await watch.stop()
        await mover.stop()

    assert sorted(await ids(log)) == sorted(names)


async def test_what_another_gateway_schedules_is_moved_in_time(url: str, schema: str, log: SqliteMessageLog) -> None:
    """Although nobody told this gateway's mover, which sleeps."""
    async with (
        open_postgres(url, schema=schema, lease=LEASE) as here,
        open_postgres(url, schema=schema, lease=LEASE) as there,
    ):
        mover, watch = mover_of(here, log)
        mover.start()
        watch.start()
        timers = PostgresTimerStore(there.database, there.presence)
        due = there.clock.now() + timedelta(milliseconds=500)
        await timers.add([Timer("orders", Draft("m", b"x"), due)])

        await until(lambda: are_delivered(timers, "m"))
        rows = await here.database.read(b"SELECT decided_at - due FROM timer")
        await watch.stop()
        await mover.stop()

    assert await ids(log) == ["m"]
    assert rows[0][0] >= timedelta(0)


async def test_a_gateway_that_left_has_left_nothing_open(url: str, schema: str) -> None:
    """Neither a row that says it is alive nor a connection."""
    async with open_postgres(url, schema=schema, most=3) as left:
        await asyncio.gather(*(left.database.probe() for _ in range(10)))

    async with open_postgres(url, schema=schema) as postgres:
        assert await postgres.database.read(b"SELECT owner FROM gateway") == [(postgres.presence.owner,)]
