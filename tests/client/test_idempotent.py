"""The idempotent consumer on SQLite and PostgreSQL: one effect per message, wherever a process crashes."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sql_databases import Connect, Crash, CrashingConnection, Steps, postgresql_database, sqlite_database

from mqgate.client import Message, Retry
from mqgate.client.idempotent import DatabaseUnusable, Processed, create_statements


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path) -> Iterator[Connect]:
    """Return a function that connects to a database with the table of records and that of an application."""
    if request.param == "sqlite":
        opened = sqlite_database(tmp_path)
    else:
        opened = postgresql_database(request.getfixturevalue("postgres").postgres_url)
    with opened as connect:
        connection = connect()
        Processed("billing").create_table(connection)
        connection.cursor().execute("CREATE TABLE charges (message VARCHAR(100))")
        connection.commit()
        connection.close()
        yield connect


def _message(message_id: str) -> Message:
    return Message({"id": message_id, "topic": "orders", "body": "x"})


def _charge(connect: Connect, message_id: str) -> None:
    """Work with a transaction that records the message."""
    connection = connect()
    try:
        if Processed("billing").mark_done(connection, message_id):
            connection.cursor().execute(f"INSERT INTO charges VALUES ('{message_id}')")  # noqa: S608 - our own
        connection.commit()
    finally:
        connection.rollback()
        connection.close()


def _rows(connect: Connect, query: str) -> list[Any]:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute(query)
    found = cursor.fetchall()
    connection.close()
    return found


def test_work_in_a_transaction_is_done_once_wherever_a_process_crashes(connect):
    """Every message is delivered until its handler returns, and once more."""
    crash_at, is_complete = 0, False
    while not is_complete:
        crash_at += 1
        steps = Steps(crash_at)
        try:
            _charge(lambda steps=steps: CrashingConnection(connect(), steps), f"m{crash_at}")
            is_complete = True
        except Crash:
            _charge(connect, f"m{crash_at}")
        _charge(connect, f"m{crash_at}")

    assert crash_at == 5
    assert sorted(_rows(connect, "SELECT message FROM charges")) == [(f"m{n}",) for n in range(1, 6)]


def test_no_message_is_lost_between_the_two_phases_of_a_guard_wherever_a_process_crashes(connect):
    """A crash before the end of the work repeats it; a crash after "done" does not."""
    crash_at, is_complete, done = 0, False, []
    while not is_complete:
        crash_at += 1
        steps = Steps(crash_at)

        def crashing(steps: Steps = steps) -> CrashingConnection:
            return CrashingConnection(connect(), steps)

        guard, after = Processed("billing").guard, _message(f"m{crash_at}")
        try:
            guard(crashing, lease=0)(lambda message: done.append(message.id))(after)
            is_complete = True
        except (Crash, DatabaseUnusable):
            guard(connect, lease=0)(lambda message: done.append(message.id))(after)
        guard(connect, lease=0)(lambda message: done.append(message.id))(after)

    counts = [done.count(f"m{n}") for n in range(1, crash_at + 1)]
    assert set(counts) <= {1, 2}
    assert counts[-1] == 1
    assert _rows(connect, "SELECT count(*) FROM mqgate_processed WHERE done_at IS NULL") == [(0,)]


def test_a_message_that_is_done_is_not_handled_again(connect):
    """Its redelivery is acknowledged without work; another consumer has records of its own."""
    handled = []
    for consumer in ("billing", "billing", "shipping"):
        Processed(consumer).guard(connect, lease=60)(lambda message: handled.append(message.id))(_message("m1"))

    assert handled == ["m1", "m1"]


def test_a_message_that_another_process_works_on_is_retried_later(connect):
    """Two processes must not do the work at the same time."""
    guard = Processed("billing").guard(connect, lease=60)
    outer = []

    def handle(message: Message) -> None:
        with pytest.raises(Retry) as retry:
            guard(lambda _: outer.append("worked twice"))(message)
        outer.append(retry.value.delay)

    guard(handle)(_message("m1"))

    assert len(outer) == 1
    assert 0 < outer[0] <= 60


def test_a_failed_handler_leaves_no_claim(connect):
    """The next delivery must not wait for the lease."""
    guard = Processed("billing").guard(connect, lease=600)
    handled = []

    def fail(_message: Message) -> None:
        raise ValueError("bad day")

    with pytest.raises(ValueError, match="bad day"):
        guard(fail)(_message("m1"))
    guard(lambda message: handled.append(message.id))(_message("m1"))

    assert handled == ["m1"]


def test_only_old_records_are_cleaned(connect):
    """The table must not grow forever, and a recent message must stay known."""
    guard = Processed("billing").guard(connect, lease=60)
    guard(lambda _: None)(_message("m1"))
    connection = connect()

    kept = Processed("billing").clean(connection, timedelta(hours=1))
    cleaned = Processed("billing").clean(connection, timedelta(seconds=-1))
    connection.commit()
    connection.close()

    assert (kept, cleaned) == (0, 1)


def test_a_missing_table_is_reported_before_the_first_message(tmp_path):
    """A handler that fails for every message would dead-letter all of them."""
    with pytest.raises(DatabaseUnusable, match="create_table"):
        Processed("billing").guard(lambda: sqlite3.connect(tmp_path / "empty.db"), lease=60)
    assert "mqgate_processed" in create_statements("sqlite")[0]
