"""Delays and idempotency keys on the command line, against a running gateway."""

import json
from datetime import UTC, datetime, timedelta

import pytest

TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.fixture
def later(done, names):
    """Return the id of a message due in ten days."""
    return done("pub", names[0], "later", "--delay", "10d", "--message-key", "k", "--tag", "t")["id"]


def test_a_delayed_publish_shows_its_delivery_time_and_how_to_cancel_it(mqgate, names):
    """A user can correct a wrong delay until then."""
    result = mqgate("pub", names[0], "later", "--delay", "2h")

    fields = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert result.exit_code == 0
    assert fields["deliver"].startswith("at ")
    assert f"mqgate scheduled cancel {fields['id']}" in result.stderr


def test_an_instant_may_be_text_or_milliseconds(done, names):
    """People write text, programs use milliseconds."""
    as_text = done("pub", names[0], "x", "--deliver-at", TOMORROW.isoformat())
    as_number = done("pub", names[0], "x", "--deliver-at", f"{TOMORROW.timestamp():.0f}000")

    assert as_text["deliverAt"] == as_number["deliverAt"]
    assert datetime.fromisoformat(as_text["deliverAt"]) == TOMORROW


def test_a_repeated_idempotency_key_is_reported_and_not_stored(mqgate, done, names):
    """A script that runs twice must not charge twice."""
    topic, _, group = names
    first = done("pub", topic, "once", "--idempotency-key", "order-17")

    again = mqgate("pub", topic, "once", "--idempotency-key", "order-17")
    other = mqgate("pub", topic, "twice", "--idempotency-key", "order-17")

    assert (again.exit_code, first["id"] in again.stdout) == (0, True)
    assert "published before" in again.stderr
    assert other.exit_code == 1
    assert mqgate("sub", group, "--once", "--body").stdout == "once\n"


def test_a_file_of_lines_sent_again_with_its_key_is_stored_once(mqgate, names):
    """After a failure, the whole file is sent again; equal lines are still two messages."""
    topic, _, group = names
    arguments = ("pub", topic, "--lines", "--idempotency-key", "import-1")
    first = mqgate(*arguments, stdin=b"a\nb\n")

    again = mqgate(*arguments, stdin=b"a\nb\na\n")

    assert first.stderr == "2 published, 0 refused\n"
    assert again.stderr == "1 published, 2 duplicate, 0 refused\n"
    assert mqgate("sub", group, "--once", "--body").stdout == "a\nb\na\n"


def test_delayed_lines_are_counted_as_scheduled(mqgate, names):
    """They are not published yet."""
    result = mqgate("pub", names[0], "--lines", "--delay", "1h", stdin=b"a\nb\n")

    assert (result.exit_code, result.stderr) == (0, "0 published, 2 scheduled, 0 refused\n")


def test_a_scheduled_message_is_listed_and_shown_with_its_body(mqgate, names, later):
    """The list shows delivery times; the body is requested for one message."""
    listed = mqgate("scheduled", "list", "--topic", names[0])
    shown = mqgate("scheduled", "show", later)

    heading, line = listed.stdout.splitlines()
    assert heading.split() == ["ID", "TOPIC", "DELIVER", "AT", "KEY", "TAG", "PROPERTIES"]
    assert line.split()[:2] == [later, names[0]]
    assert ["body", "later"] in [line.split() for line in shown.stdout.splitlines()]


def test_a_list_of_scheduled_messages_is_limited_by_time_and_continues_at_its_cursor(mqgate, done, names):
    """There may be millions of scheduled messages."""
    topic = names[0]
    days = [(TOMORROW + timedelta(days=n)).isoformat() for n in range(4)]
    ids = [done("pub", topic, "x", "--deliver-at", day)["id"] for day in days]
    window = ("--topic", topic, "--from", days[1], "--to", days[3], "--limit", "1")

    first = mqgate("scheduled", "list", *window)
    cursor = first.stderr.split()[-1]
    second = done("scheduled", "list", *window, "--cursor", cursor)

    assert ids[1] in first.stdout
    assert [item["id"] for item in second["items"]] == [ids[2]]
    assert second["next"] is None


def test_a_scheduled_message_is_delivered_when_it_is_retimed_to_now(mqgate, done, names, workers, later):
    """The usual change is to an earlier time."""
    retimed = done("scheduled", "retime", later, "--delay", "0")

    received = mqgate("sub", workers, "--once", "--wait", "30s", "--json")

    assert retimed["id"] == later
    assert json.loads(received.stdout)["id"] == later


def test_a_cancelled_message_cannot_be_retimed(mqgate, names, later):
    """A cancellation may be repeated and cannot be undone."""
    cancelled = [mqgate("scheduled", "cancel", later) for _ in range(2)]
    retimed = mqgate("scheduled", "retime", later, "--deliver-at", TOMORROW.isoformat())

    assert [(result.exit_code, result.stdout) for result in cancelled] == [(0, f"message {later} cancelled\n")] * 2
    assert (retimed.exit_code, retimed.stderr.endswith("(already_cancelled)\n")) == (1, True)
    assert later not in mqgate("scheduled", "list", "--topic", names[0]).stdout
    assert "cancelled" in mqgate("scheduled", "show", later).stdout
