"""Responses as text."""

import pytest

from mqgate.cli.message_line import as_body, as_line
from mqgate.cli.output import render, table


def test_columns_are_aligned_also_under_wide_characters():
    """A Chinese character takes two columns on a terminal."""
    lines = table([{"name": "\u8ba2\u5355", "queues": 8}, {"name": "a", "queues": 16}]).splitlines()

    assert lines == ["NAME  QUEUES", "\u8ba2\u5355  8", "a     16"]


def test_absent_values_and_flags_are_shown_as_words():
    """None and True are Python terms."""
    assert render({"paused": False, "rateLimit": None}) == "paused      no\nrate limit  -"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(604_800, "7d"), (7_200, "2h"), (90, "90s"), (1.5, "1.5s"), (0, "0s"), (120, "2m")]
)
def test_durations_are_shown_in_the_form_of_an_option(seconds, shown):
    """The output of `show` can be used as an option of `change`."""
    assert render({"visibility": seconds}) == f"visibility  {shown}"


def test_whole_numbers_are_shown_without_a_fraction():
    """A limit of 100.0 messages looks like a measurement."""
    assert render({"rateLimit": {"rate": 100.0, "burst": 2.5}, "body": "1.0"}) == (
        "rate limit  rate=100 burst=2.5\nbody        1.0"
    )


def test_an_empty_list_is_shown_as_none():
    """Empty output looks like a failed command."""
    assert render({"items": []}) == "(none)"


def test_a_list_is_a_table_below_the_single_values():
    """The totals are shown first, then their parts."""
    shown = render({"lag": 3, "queues": [{"queue": "local:0", "max": 60}]})

    assert shown == "lag  3\n\nQUEUE    MAX\nlocal:0  60"


def test_control_sequences_of_messages_are_escaped():
    """A message body may contain escape sequences that a terminal executes."""
    message = {
        "queue": "local:0",
        "offset": 7,
        "storedAt": "2030-01-01T00:00:00.000Z",
        "body": "a\x1b[2Jb\nc",
    }

    assert as_line(message) == b"local:0@7  2030-01-01T00:00:00.000Z  a\\x1b[2Jb\\nc\n"
    assert "\x1b" not in render({"reason": "\x1b]0;title\x07"})


def test_a_line_shows_metadata_and_repeated_deliveries():
    """Key, tag, properties and the delivery count help to diagnose problems."""
    message = {
        "queue": "local:0",
        "offset": 7,
        "storedAt": "now",
        "key": "k",
        "tag": "t",
        "properties": {"p": "v"},
        "delivery": 2,
        "bodyBase64": "//4=",
    }

    assert as_line(message) == b"local:0@7  now  key=k  tag=t  p=v  delivery=2  base64://4=\n"


def test_bodies_alone_are_printed_unchanged():
    """Bodies are piped into other programs."""
    assert as_body({"bodyBase64": "//4="}) == b"\xff\xfe\n"
    assert as_body({"body": "a\x1b"}) == b"a\x1b\n"
