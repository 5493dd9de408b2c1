"""`mqgate outbox`: the relay as a command."""

import json
import sqlite3
from uuid import uuid4

import pytest

from mqgate.client.outbox import Outbox


@pytest.fixture
def topic(done):
    """Create a topic."""
    name = f"outbox-{uuid4().hex}"
    done("topic", "create", name)
    return name


@pytest.fixture
def database(tmp_path, topic):
    """Return the address of a database with a good row and a bad one."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    Outbox().create_table(connection)
    Outbox().add(connection, topic, "good", key="a")
    Outbox().add(connection, topic, "bad", key="b", properties={"x": ""})
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def test_a_relay_publishes_and_shows_what_was_refused(mqgate, database, topic):
    """An operator sees a bad row without a look into the database."""
    relayed = mqgate("outbox", "relay", "--database", database, "--once")
    listed = mqgate("--json", "outbox", "list", "--database", database)
    retried = mqgate("outbox", "retry", "--database", database)

    assert (relayed.exit_code, retried.exit_code) == (0, 0)
    assert "2 rows done" in relayed.stderr
    (row,) = json.loads(listed.stdout)["items"]
    assert (row["topic"], row["key"]) == (topic, "b")
    assert json.loads(mqgate("--json", "outbox", "list", "--database", database).stdout) == {"items": []}


def test_a_database_without_an_outbox_or_of_another_kind_is_refused(mqgate, tmp_path):
    """The message says what to do."""
    empty = mqgate("outbox", "relay", "--database", f"sqlite:///{tmp_path / 'empty.db'}", "--once")
    other = mqgate("outbox", "relay", "--database", "oracle://host/name", "--once")

    assert (empty.exit_code, other.exit_code) == (2, 2)
    assert "create_table" in empty.stderr
    assert "sqlite:///" in other.stderr
