"""The server's clock, as a gateway knows it; and being seen."""

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
    """A clock that counts seconds from anywhere."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def learn(clock: ServerClock, steady: Steady, told_after: float, journey: float = 0.0) -> None:
    """The server says NOON and so many seconds, half a journey after it was asked."""
    asked = steady.at
    steady.at += journey
    clock.add_sample(NOON + timedelta(seconds=told_after), asked)


async def last_seen(database: Database) -> datetime:
    return (await database.read(b"SELECT seen_at FROM gateway"))[0][0]


async def is_later(database: Database, first: datetime) -> bool:
    return await last_seen(database) > first


def test_time_goes_on_between_two_questions() -> None:
    """Nobody asks the server for every message."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0)

    steady.at += 2.5

    assert clock.now() == NOON + 2.5 * SECOND


def test_the_clock_is_never_behind_the_server() -> None:
    """What the journey leaves open counts as gone by: a delay is never too short."""
    steady = Steady()
    clock = ServerClock(steady)

    learn(clock, steady, 0, journey=0.2)

    assert clock.now() == NOON + 0.2 * SECOND


def test_a_slow_answer_does_not_spoil_what_is_known_better() -> None:
    """A server under load answers late: then the answer says little."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0, journey=0.002)

    learn(clock, steady, 2, journey=3.0)

    assert clock.now() == NOON + 3.002 * SECOND


def test_what_was_known_well_is_forgotten_in_time() -> None:
    """Quartzes drift: an old sample is worth less than a fresh one, though that took longer."""
    steady = Steady()
    clock = ServerClock(steady)
    learn(clock, steady, 0, journey=0.002)
    steady.at += 100

    learn(clock, steady, 100.01, journey=0.02)

    assert clock.now() == NOON + 100.03 * SECOND


def test_a_server_whose_clock_jumps_is_followed() -> None:
    """Forth or back: it is the one that judges."""
    for jump in (600, -600):
        steady = Steady()
        clock = ServerClock(steady)
        learn(clock, steady, 0, journey=0.002)

        learn(clock, steady, jump, journey=0.5)

        assert clock.now() == NOON + (jump + 0.5) * SECOND


async def test_a_heartbeat_brings_the_servers_time(presence: Presence, clock: ManualClock) -> None:
    """The gateway's own wall clock, minutes off or not, plays no part."""
    clock.advance(timedelta(days=400))
    await presence.run_once()

    assert timedelta(0) <= presence.clock.now() - clock.now < timedelta(minutes=1)


async def test_without_a_clock_of_the_tests_the_servers_own_counts(open_database: OpenDatabase) -> None:
    """As in production."""
    database = await open_database(now=lambda: None)
    presence = Presence(database)

    await presence.run_once()

    rows = await database.read(b"SELECT abs(extract(epoch FROM clock_timestamp() - seen_at)) < 60 FROM gateway")
    assert rows == [(True,)]


async def test_the_heart_beats_until_it_is_stopped(open_database: OpenDatabase) -> None:
    """Once each interval; and then the row is gone."""
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


async def test_a_heart_goes_on_beating_after_a_failure(open_database: OpenDatabase) -> None:
    """The server was away for a while."""
    database = await open_database(now=lambda: None)
    presence = Presence(database, interval=timedelta(milliseconds=1))
    await presence.run_once()
    await database.write(b"ALTER TABLE gateway RENAME TO hidden")

    with structlog.testing.capture_logs() as told:
        presence.start()
        await until(lambda: asyncio.sleep(0, bool(told)))
    await database.write(b"ALTER TABLE hidden RENAME TO gateway")
    first = await last_seen(database)
    await until(lambda: is_later(database, first))

    await presence.stop()
    assert [each["event"] for each in told] == ["heartbeat failed"]


async def test_gateways_that_are_long_gone_are_forgotten(
    database: Database, presence: Presence, clock: ManualClock
) -> None:
    """Every restart is a new owner: their rows must not pile up."""
    living = Presence(database)
    clock.advance(timedelta(hours=2))
    await living.run_once()

    await living.tidy()

    assert await database.read(b"SELECT owner FROM gateway") == [(living.owner,)]
