"""Sessions of two gateways with timer dispatchers, one of which crashes."""

import asyncio
import os
import signal
import sys
from datetime import timedelta

import pytest

from eventually import until
from mqgate.adapters.postgres.session import Postgres, open_postgres
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
from mqgate.adapters.postgres.session import open_postgres
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
    """Return the log to which the dispatcher writes."""
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
    """Return the URL. The `database` fixture drops the schema."""
    return postgres.postgres_url


def dispatcher_of(postgres: Postgres, log: SqliteMessageLog) -> tuple[TimerDispatcher, TimerWatch]:
    """Assemble the parts like a gateway."""
    timers = PostgresTimerStore(postgres.database, postgres.presence)
    metrics = Metrics()
    dispatcher = TimerDispatcher(
        timers, log, metrics, EventRecorder(metrics, int, max_rows=0, is_on=False), postgres.clock.now
    )

    def abandoned() -> None:
        dispatcher.recover_later()
        dispatcher.wake_by(postgres.clock.now() - timedelta(days=1))

    watch = TimerWatch(timers, on_due=dispatcher.wake_by, on_abandoned=abandoned, interval=timedelta(milliseconds=100))
    return dispatcher, watch


async def test_timers_of_a_killed_gateway_are_dispatched_by_another(
    url: str, schema: str, log: SqliteMessageLog
) -> None:
    """Claimed and scheduled timers must be delivered, and sent ones must not be sent again."""
    names = [f"m{n}" for n in range(20)]
    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLAIMS, url, schema, stdout=asyncio.subprocess.PIPE
    )
    await log.append("orders", [Draft("m0", b"x"), Draft("m1", b"x")])
    async with open_postgres(url, schema=schema, lease=LEASE) as postgres:
        dispatcher, watch = dispatcher_of(postgres, log)
        timers = PostgresTimerStore(postgres.database, postgres.presence)
        claimed = await dying.stdout.readline()

        os.kill(dying.pid, signal.SIGKILL)
        await dying.wait()
        assert claimed == b"10\n"
        dispatcher.start()
        watch.start()
        await until(lambda: are_delivered(timers, *names))
        await watch.stop()
        await dispatcher.stop()

    assert sorted(await ids(log)) == sorted(names)


async def test_timers_of_another_gateway_are_dispatched_in_time(url: str, schema: str, log: SqliteMessageLog) -> None:
    """The dispatcher of this gateway sleeps and gets no direct notification."""
    async with (
        open_postgres(url, schema=schema, lease=LEASE) as here,
        open_postgres(url, schema=schema, lease=LEASE) as there,
    ):
        dispatcher, watch = dispatcher_of(here, log)
        dispatcher.start()
        watch.start()
        timers = PostgresTimerStore(there.database, there.presence)
        due = there.clock.now() + timedelta(milliseconds=500)
        await timers.add([Timer("orders", Draft("m", b"x"), due)])

        await until(lambda: are_delivered(timers, "m"))
        rows = await here.database.read(b"SELECT decided_at - due FROM timer")
        await watch.stop()
        await dispatcher.stop()

    assert await ids(log) == ["m"]
    assert rows[0][0] >= timedelta(0)


async def test_a_closed_session_leaves_no_heartbeat_and_no_connection(url: str, schema: str) -> None:
    """Otherwise the gateway would count as alive, and connections would accumulate."""
    async with open_postgres(url, schema=schema, max_size=3) as left:
        await asyncio.gather(*(left.database.probe() for _ in range(10)))

    async with open_postgres(url, schema=schema) as postgres:
        assert await postgres.database.read(b"SELECT owner FROM gateway") == [(postgres.presence.owner,)]
