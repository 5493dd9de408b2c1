"""The commands against a running gateway."""

import json
from uuid import uuid4

import pytest

from mqgate import __version__


def test_a_topic_is_created_changed_and_deleted(mqgate, done):
    """These are the first commands of a new user."""
    topic = f"topic-{uuid4().hex}"

    created = done("topic", "create", topic, "--queues", "2", "--retention", "7d")
    changed = done("topic", "update", topic, "--queues", "4")
    listed = mqgate("topic", "list")
    deleted = mqgate("topic", "delete", topic)
    gone = mqgate("topic", "show", topic)

    assert (created["queues"], created["retention"]) == (2, 604_800)
    assert (changed["queues"], changed["retention"]) == (4, 604_800)
    assert any(line.split()[:3] == [topic, "4", "7d"] for line in listed.stdout.splitlines())
    assert (deleted.exit_code, deleted.stdout) == (0, f"topic {topic} deleted\n")
    assert gone.exit_code == 1
    assert gone.stderr.startswith("error: ")
    assert gone.stderr.endswith("(topic_not_found)\n")


def test_a_topic_keeps_its_size_limit_when_another_setting_changes_and_loses_it_on_request(done):
    """A change of one setting must not reset another, which would delete or keep data unnoticed."""
    topic = f"topic-{uuid4().hex}"
    done("topic", "create", topic, "--queues", "1", "--retention-bytes", "1000000")

    kept = done("topic", "update", topic, "--retention", "1h")
    lifted = done("topic", "update", topic, "--retention-bytes", "none")

    assert kept["retentionBytes"] == 1_000_000
    assert (lifted["retentionBytes"], lifted["retention"]) == (None, 3_600)


def test_a_refusal_is_json_with_its_members_if_json_was_requested(mqgate, names):
    """Programs use the code."""
    result = mqgate("--json", "topic", "delete", names[0])

    problem = json.loads(result.stderr)
    assert result.exit_code == 1
    assert (problem["status"], problem["code"]) == (409, "topic_in_use")


def test_the_rate_limit_of_a_producer_is_set_and_removed(done, names):
    """`none` is the only way to remove a limit."""
    _, producer, _ = names

    limited = done("producer", "update", producer, "--rate-limit", "100:500")
    lifted = done("producer", "update", producer, "--rate-limit", "none")
    listed = done("producer", "list")["items"]

    assert limited["rateLimit"] == {"rate": 100, "burst": 500}
    assert (lifted["topic"], lifted["rateLimit"]) == (names[0], None)
    assert producer in {item["name"] for item in listed}


def test_sub_prints_and_acknowledges_the_messages_of_pub(mqgate, done, names):
    """These two commands are the first ones that a new user runs."""
    topic, producer, group = names
    published = done(
        *("pub", topic, "hello \u4e2d", "--producer", producer, "--message-key", "k", "--tag", "t"),
        *("--property", "colour=red"),
    )

    received = mqgate("sub", group, "--once")
    again = mqgate("sub", group, "--once")

    assert received.exit_code == 0
    assert f"{published['queue']}@{published['offset']}" in received.stdout
    assert received.stdout.endswith("key=k  tag=t  colour=red  hello \u4e2d\n")
    assert (again.exit_code, again.stdout) == (0, "")


@pytest.mark.parametrize("body", [b"\xff\x00\n", b'{"a": 1}\r\n'])
def test_stdin_and_files_are_published_unchanged(mqgate, done, names, tmp_path, body):
    """The body includes the last line end."""
    topic, producer, group = names
    file = tmp_path / "body"
    file.write_bytes(body)

    done("pub", topic, "-", "--producer", producer, stdin=body)
    done("pub", topic, "--file", str(file), "--producer", producer)

    assert mqgate("sub", group, "--once", "--body").stdout_bytes == (body + b"\n") * 2


def test_lines_are_published_in_order_with_a_count(mqgate, names):
    """250 lines are three requests, which must keep the order."""
    topic, producer, group = names
    lines = [f"line {number}" for number in range(250)]

    result = mqgate("pub", topic, "--lines", "--producer", producer, stdin="\n".join(lines).encode())

    received = mqgate("sub", group, "--once", "--max", "1000", "--body")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "250 published, 0 refused\n"
    assert received.stdout.splitlines() == lines


def test_a_failed_publish_of_lines_reports_the_line_to_continue_from(mqgate):
    """The user must know which lines were not sent."""
    result = mqgate("pub", f"topic-{uuid4().hex}", "--lines", stdin=b"a\nb\n")

    assert result.exit_code == 1
    assert "0 published, 0 refused before line 1" in result.stderr
    assert result.stderr.endswith("(topic_not_found)\n")


def test_without_ack_the_messages_stay_leased(mqgate, done, names):
    """With --no-ack, messages must not be consumed."""
    topic, producer, group = names
    done("pub", topic, "hello", "--producer", producer)

    line = mqgate("--json", "sub", group, "--once", "--no-ack").stdout

    message = json.loads(line)
    assert (message["body"], bool(message["receipt"])) == ("hello", True)
    assert done("group", "lag", group)["leased"] == 1


def test_every_broadcast_client_prints_every_message(mqgate, done, names):
    """A new client is notified, because it starts at the latest message."""
    topic, producer, _ = names
    group = f"group-{uuid4().hex}"
    done("group", "create", group, "--topic", topic, "--mode", "broadcast")
    first_contact = [mqgate("sub", group, "--once", "--client-id", client) for client in ("web-1", "web-2")]
    done("pub", topic, "hello", "--producer", producer)

    printed = [mqgate("sub", group, "--once", "--body", "--client-id", client).stdout for client in ("web-1", "web-2")]

    assert all("registered" in contact.stderr for contact in first_contact)
    assert printed == ["hello\n", "hello\n"]


def test_a_broadcast_group_without_a_client_id_is_refused_with_advice(mqgate, done, names):
    """The error text of the gateway names the missing option."""
    group = f"group-{uuid4().hex}"
    done("group", "create", group, "--topic", names[0], "--mode", "broadcast")

    result = mqgate("sub", group, "--once")

    assert result.exit_code == 1
    assert "clientId" in result.stderr


def test_lag_clients_and_pause_show_the_state_of_a_group(mqgate, done, names):
    """Operators use these commands when messages do not arrive."""
    topic, producer, group = names
    done("pub", topic, "hello", "--producer", producer)
    done("group", "pause", group, "--reason", "maintenance")

    paused = mqgate("sub", group, "--once", "--client-id", "worker-1")
    lag = mqgate("group", "lag", group)
    clients = mqgate("group", "clients", group)
    done("group", "resume", group)
    resumed = mqgate("sub", group, "--once", "--body")

    assert paused.stdout == ""
    assert "paused" in paused.stderr
    assert lag.stdout.splitlines()[0].split() == ["lag", "1"]
    assert "local:0" in lag.stdout
    assert "worker-1" in clients.stdout
    assert resumed.stdout == "hello\n"


def test_a_seek_has_a_dry_run(mqgate, done, names):
    """Offsets of one queue or all of them, and a dry run changes nothing."""
    topic, producer, group = names
    mqgate("pub", topic, "--lines", "--producer", producer, stdin=b"a\nb\nc\n")

    tried = mqgate("group", "seek", group, "--to", "latest", "--dry-run")
    untouched = done("group", "lag", group)["lag"]
    done("group", "seek", group, "--offset", "local:0=2", "--reason", "skip two")

    assert tried.exit_code == 0
    assert "local:0" in tried.stdout
    assert "nothing was changed" in tried.stderr
    assert untouched == 3
    assert mqgate("sub", group, "--once", "--body").stdout == "c\n"


def test_every_command_requires_a_key_as_soon_as_one_exists(mqgate, done):
    """The admin key is shown once and grants full access; without keys, the gateway is open again."""
    created = done("key", "create", "--admin")
    try:
        without = mqgate("topic", "list")
        with_key = mqgate("key", "list", MQGATE_KEY=created["key"])
        doctor = mqgate("doctor")
    finally:
        deleted = mqgate("--key", created["key"], "key", "delete", created["id"])

    assert (without.exit_code, without.stderr.endswith("(unauthorized)\n")) == (1, True)
    assert created["id"] in with_key.stdout
    assert created["key"] not in with_key.stdout
    assert doctor.exit_code == 1
    assert deleted.exit_code == 0
    assert mqgate("topic", "list").exit_code == 0


def test_a_healthy_gateway_passes_all_checks(mqgate, done):
    """No check fails, every part is listed, and the versions agree."""
    result = mqgate("doctor")

    checks = {check["check"]: check for check in done("doctor")["checks"]}
    assert result.exit_code == 0, result.output
    assert all(check["status"] == "ok" for check in checks.values()), checks
    assert {"reachable", "live", "ready", "clock", "keys", "version", "python", "sqlite"} <= checks.keys()
    assert any(name.startswith("ready: ") for name in checks)
    assert __version__ in checks["version"]["detail"]
