"""Estimate of the server clock, and the heartbeat."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog

from eventually import until
from mqgate.adapters.postgres.clock import ServerClock
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.presence import Presence
from mqgate.testing.clock import NOON, ManualClock

OpenDatabase = Callable[..., Awaitable[Database]]
SECOND = timedelta(seconds=1)


class Steady:
    """Manual monotonic clock."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def learn(clock: ServerClock, steady: Steady, server_seconds: float, round_trip: float = 0.0) -> None:
    """Add a sample of NOON plus `server_seconds` seconds with a round trip of `round_trip` seconds."""
    sent = steady.at
    steady.at += round_trip
    clock.add_sample(NOON + timedelta(seconds=server_seconds), sent)


async def last_seen(database: Database) -> datetime:
    return (await database.read(b"SELECT seen_at FROM gateway"))[0][0]


async def is_later(database: Database, first: datetime) -> bool:
    return await last_seen(database) > first


def test_the_estimate_advances_between_samples() -> None:
    """The server is not queried for every message."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0)

    steady.at += 2.5

    assert clock.now() == NOON + 2.5 * SECOND


def test_the_estimate_is_never_behind_the_server() -> None:
    """The whole round trip counts as elapsed, so that a delay is never too short."""
    steady = Steady()
    clock = ServerClock(steady)

    learn(clock, steady, 0, round_trip=0.2)

    assert clock.now() == NOON + 0.2 * SECOND


def test_a_slow_sample_does_not_replace_a_better_one() -> None:
    """A loaded server responds late, and such a sample is less exact."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0, round_trip=0.002)

    learn(clock, steady, 2, round_trip=3.0)

    assert clock.now() == NOON + 3.002 * SECOND


def test_an_old_sample_is_replaced_by_a_slower_one() -> None:
    """Clocks drift, so an old sample becomes less exact than a new one."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0, round_trip=0.002)
    steady.at += 100

    learn(clock, steady, 100.01, round_trip=0.02)

    assert clock.now() == NOON + 100.03 * SECOND


def test_a_jump_of_the_server_clock_is_followed() -> None:
    """Due times are compared with the server clock, whatever it shows."""
    for jump in (600, -600):
        steady = Steady()
        clock = ServerClock(steady)
        learn(clock, steady, 0, round_trip=0.002)

        learn(clock, steady, jump, round_trip=0.5)

        assert clock.now() == NOON + (jump + 0.5) * SECOND


async def test_a_heartbeat_samples_the_server_time(presence: Presence, clock: ManualClock) -> None:
    """The wall clock of the gateway may be wrong by minutes and must not matter."""
    clock.advance(timedelta(days=400))
    await presence.run_once()

    assert timedelta(0) <= presence.clock.now() - clock.now < timedelta(minutes=1)


async def test_the_default_clock_is_that_of_the_server(open_database: OpenDatabase) -> None:
    """Deployments use no test clock."""
    database = await open_database(now=lambda: None)
    presence = Presence(database)

    await presence.run_once()

    rows = await database.read(b"SELECT abs(extract(epoch FROM clock_timestamp() - seen_at)) < 60 FROM gateway")
    assert rows == [(True,)]


async def test_heartbeats_are_sent_until_the_stop(open_database: OpenDatabase) -> None:
    """The row must be current while the gateway runs, and deleted afterwards."""
    database = await open_database(now=lambda: None)
    presence = Presence(database, interval=timedelta(milliseconds=1))
    await presence.run_once()
    first = await last_seen(database)

    presence.start()
    presence.start()
    await until(lambda: is_later(database, first))
    await presence.stop()
    await presence.stop()

    assert await database.read(b"SELECT count(*) FROM gateway") == [(0,)]


async def test_heartbeats_continue_after_a_failure(open_database: OpenDatabase) -> None:
    """A gateway must count as alive again after an outage of the server."""
    database = await open_database(now=lambda: None)
    presence = Presence(database, interval=timedelta(milliseconds=1))
    await presence.run_once()
    await database.write(b"ALTER TABLE gateway RENAME TO hidden")

    with structlog.testing.capture_logs() as logs:
        presence.start()
        await until(lambda: asyncio.sleep(0, bool(logs)))
    await database.write(b"ALTER TABLE hidden RENAME TO gateway")
    first = await last_seen(database)
    await until(lambda: is_later(database, first))

    await presence.stop()
    assert [entry["event"] for entry in logs] == ["heartbeat failed"]


async def test_rows_of_gone_gateways_are_deleted(database: Database, presence: Presence, clock: ManualClock) -> None:
    """Every restart adds an owner, so the rows would accumulate."""
    living = Presence(database)
    clock.advance(timedelta(hours=2))
    await living.run_once()

    await living.tidy()

    assert await database.read(b"SELECT owner FROM gateway") == [(living.owner,)]
