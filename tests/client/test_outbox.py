"""The transactional outbox on SQLite and PostgreSQL: what survives a crash, in which order, and what is refused."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy
from sql_databases import Connect, Crash, CrashingConnection, Steps, postgresql_database, sqlite_database
from sqlalchemy.orm import Session

from mqgate.client import Client, GatewayError, body_of
from mqgate.client.outbox import DatabaseUnusable, Outbox, Relay, create_statements


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path) -> Iterator[Connect]:
    """Return a function that connects to a database with an outbox and the table of an application."""
    if request.param == "sqlite":
        opened = sqlite_database(tmp_path)
    else:
        opened = postgresql_database(request.getfixturevalue("postgres").postgres_url)
    with opened as connect:
        yield _prepared(connect)


def _prepared(connect: Connect) -> Connect:
    connection = connect()
    Outbox().create_table(connection)
    connection.cursor().execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    return connect


@pytest.fixture
def topic(client: Client) -> str:
    """Create a topic and a group of the same name."""
    name = f"outbox-{uuid4().hex}"
    client.topics.put(name, {"queues": 2})
    client.groups.put(name, {"topic": name, "mode": "message"})
    return name


def _order(connect: Connect, topic: str, number: int) -> None:
    connection = connect()
    try:
        cursor = connection.cursor()
        cursor.execute(f"INSERT INTO orders (id) VALUES ({number})")  # noqa: S608 - a number
        Outbox().add(connection, topic, {"order": number}, key="customer-4")
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


def _received(client: Client, group: str) -> list[bytes]:
    messages = client.receive(group, max=1_000)["messages"]
    return [body_of(message) for message in sorted(messages, key=lambda message: message["offset"])]


def _relay_all(relay: Relay) -> None:
    while relay.run_once():
        pass


def test_each_committed_order_is_published_once_wherever_a_process_crashes(connect, client, topic):
    """The application and the relay end before every statement, commit and request, and start again."""
    steps, crash_at, is_complete = Steps(0), 0, False
    while not is_complete:
        crash_at += 1
        steps = Steps(crash_at)

        def crashing(steps: Steps = steps) -> CrashingConnection:
            return CrashingConnection(connect(), steps)

        relay = Relay(crashing, client, lease=0)
        _crash_before_and_after_requests(relay, steps)
        try:
            _order(crashing, topic, crash_at)
            _relay_all(relay)
            is_complete = True
        except Crash:
            _relay_all(Relay(connect, client, lease=0))

    orders = [f'{{"order":{number}}}'.encode() for (number,) in _rows(connect, "SELECT id FROM orders ORDER BY id")]
    assert crash_at > 10
    assert 1 < len(orders) < crash_at
    assert Counter(_received(client, topic)) == Counter(orders)
    assert _rows(connect, "SELECT count(*) FROM mqgate_outbox") == [(0,)]


def _crash_before_and_after_requests(relay: Relay, steps: Steps) -> None:
    publish = relay._publish

    def crashing_publish(*arguments: Any) -> Any:
        steps.next()
        results = publish(*arguments)
        steps.next()
        return results

    relay._publish = crashing_publish


def test_an_order_that_is_rolled_back_is_not_published(connect, client, topic):
    """A message about an order that does not exist would be worse than none."""
    connection = connect()
    Outbox().add(connection, topic, "never")
    connection.rollback()
    connection.close()

    assert Relay(connect, client).run_once() == 0
    assert _received(client, topic) == []


def test_several_relays_publish_each_row_once_and_each_key_in_order(connect, client, topic):
    """Relays run beside every process of an application."""
    connection = connect()
    for number in range(60):
        Outbox().add(connection, topic, str(number), key=f"key-{number % 3}")
    connection.commit()
    connection.close()
    relays = [Relay(connect, client, max_batch=5) for _ in range(2)]

    def work(relay: Relay) -> None:
        while _rows(connect, "SELECT count(*) FROM mqgate_outbox") != [(0,)]:
            relay.run_once()

    threads = [threading.Thread(target=work, args=(relay,)) for relay in relays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    messages = sorted(client.receive(topic, max=1_000)["messages"], key=lambda message: message["offset"])
    by_key = {key: [int(body_of(m)) for m in messages if m["key"] == key] for key in ("key-0", "key-1", "key-2")}
    assert by_key == {f"key-{start}": list(range(start, 60, 3)) for start in range(3)}


def test_the_messages_of_a_key_are_stored_in_their_order(connect, client, topic):
    """A batch has at most one row of a key, so a retry cannot overtake."""
    connection = connect()
    for number in range(10):
        Outbox().add(connection, topic, str(number), key="same")
    connection.commit()
    connection.close()
    relay = Relay(connect, client)

    counts = [relay.run_once() for _ in range(11)]

    assert counts == [1] * 10 + [0]
    assert _received(client, topic) == [str(number).encode() for number in range(10)]


def test_a_refused_row_is_visible_and_blocks_only_its_key(connect, client, topic):
    """One bad message must not stop the others, and must not be skipped silently."""
    outbox = Outbox()
    connection = connect()
    bad = outbox.add(connection, topic, "bad", key="a", properties={"x": ""})
    outbox.add(connection, topic, "behind", key="a")
    outbox.add(connection, topic, "other", key="b")
    connection.commit()

    _relay_all(Relay(connect, client))

    (refused,) = outbox.refused(connection)
    connection.rollback()
    assert (refused.id, refused.key) == (bad, "a")
    assert "properties" in refused.reason
    assert _received(client, topic) == [b"other"]
    connection.close()


def test_a_topic_that_is_missing_keeps_its_rows(connect, client):
    """The topic can be created later; no message is lost meanwhile."""
    missing = f"missing-{uuid4().hex}"
    _order(connect, missing, 1)
    relay = Relay(connect, client)

    with pytest.raises(GatewayError, match="topic_not_found"):
        relay.run_once()
    client.topics.put(missing, {})

    assert relay.run_once() == 1


def test_a_missing_table_is_reported_with_its_remedy(client, tmp_path):
    """A relay that only logs would look as if it worked."""
    relay = Relay(lambda: sqlite3.connect(tmp_path / "empty.db"), client)

    with pytest.raises(DatabaseUnusable, match="create_table"):
        relay.check()


def test_another_database_is_refused():
    """A statement of another dialect could claim rows wrongly."""
    with pytest.raises(DatabaseUnusable, match="use SQLite"):
        Outbox().add(object(), "orders", "hello")
    with pytest.raises(DatabaseUnusable, match="use SQLite"):
        create_statements("oracle")


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_message_is_added_in_a_transaction_of_sqlalchemy(client, topic, tmp_path, kind):
    """Applications with an ORM have no DB-API connection at hand."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        for text in create_statements("sqlite"):
            connection.execute(sqlalchemy.text(text))

    opened = Session(engine) if kind == "session" else engine.connect()
    with opened as target:
        Outbox().add(target, topic, "kept")
        target.commit()
        Outbox().add(target, topic, "rolled back")
        target.rollback()
    with Relay(engine.raw_connection, client, interval=0.01):
        received = client.receive(topic, wait=30)["messages"]
    engine.dispose()

    assert [body_of(message) for message in received] == [b"kept"]
