"""`mqgate alarm` against a running gateway."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from click.testing import Result

from webhook_receiver import webhook_receiver

Run = Callable[..., Result]
Done = Callable[..., Any]


def test_a_threshold_is_set_shown_and_reset(done: Done, mqgate: Run) -> None:
    """For one group, which the table shows below the rule."""
    group = f"group-{uuid4().hex}"

    found = done("alarm", "rule", "set", "backlog_age", "--subject", group, "--threshold", "7", "--for", "2m")
    table = mqgate("alarm", "rule", "list").stdout
    done("alarm", "rule", "reset", "backlog_age", "--subject", group)

    assert found == {"threshold": 7.0, "for": 120.0, "enabled": True}
    (line,) = [line for line in table.splitlines() if group in line]
    assert line.split()[:3] == ["backlog_age", group, "7"]
    assert group not in mqgate("alarm", "rule", "list").stdout


def test_a_rule_without_a_setting_is_a_mistake(mqgate: Run) -> None:
    """It would change nothing."""
    assert mqgate("alarm", "rule", "set", "backlog_age").exit_code == 2


def test_a_silence_is_added_and_ended(done: Done) -> None:
    """Its id comes from the list."""
    subject, until = f"group-{uuid4().hex}", int((time.time() + 3_600) * 1_000)

    added = done("alarm", "silence", "add", "--subject", subject, "--until", str(until), "--reason", "upgrade")
    listed = done("alarm", "silence", "list")["items"]
    done("alarm", "silence", "end", added["id"])

    assert added in listed
    assert added["id"] not in {silence["id"] for silence in done("alarm", "silence", "list")["items"]}


def test_a_channel_is_set_from_files_tested_and_deleted(done: Done, mqgate: Run, tmp_path: Path) -> None:
    """URL and secret are not in the command line, which other users can read."""
    name, secret = f"channel-{uuid4().hex}", tmp_path / "secret"
    secret.write_text("correct horse battery\n", "utf-8")
    with webhook_receiver() as receiver:
        target = tmp_path / "url"
        target.write_text(f"{receiver.url}\n", "utf-8")
        files = ("--target-file", str(target), "--secret-file", str(secret))

        shown = done("alarm", "channel", "set", name, "--kind", "webhook", *files)
        outcome = done("alarm", "channel", "test", name)
        receiver.status = 500
        failed = mqgate("alarm", "channel", "test", name)

        assert shown["url"] == "http://127.0.0.1/***"
        assert outcome == {"outcome": "sent", "error": None}
        assert receiver.titles == ["[TEST] mqgate"]
        assert (failed.exit_code, "HTTP status 500" in failed.stdout) == (1, True)
    assert name in {channel["name"] for channel in done("alarm", "channel", "list")["items"]}
    done("alarm", "channel", "delete", name)
    assert name not in {channel["name"] for channel in done("alarm", "channel", "list")["items"]}


def test_a_file_that_does_not_exist_is_named(mqgate: Run) -> None:
    """A mistake in a command is a usage error."""
    refused = mqgate("alarm", "channel", "set", "ops", "--kind", "webhook", "--target-file", "/no/such/file")

    assert refused.exit_code == 2
    assert "/no/such/file" in refused.stderr


def test_lists_can_be_empty(done: Done) -> None:
    """A new gateway has no alarms."""
    for name in ("list", "history", "inbox"):
        assert isinstance(done("alarm", name)["items"], list)
