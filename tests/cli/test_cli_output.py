"""How answers look to people."""

import pytest

from mqgate.cli.message_line import as_body, as_line
from mqgate.cli.output import render, table


def test_columns_are_aligned_also_under_wide_characters():
    """A Chinese character takes two places on a terminal."""
    lines = table([{"name": "\u8ba2\u5355", "queues": 8}, {"name": "a", "queues": 16}]).splitlines()

    assert lines == ["NAME  QUEUES", "\u8ba2\u5355  8", "a     16"]


def test_absent_values_and_flags_are_words_a_person_reads():
    """None and True are Python's, not the reader's."""
    assert render({"paused": False, "rateLimit": None}) == "paused      no\nrate limit  -"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(604_800, "7d"), (7_200, "2h"), (90, "90s"), (1.5, "1.5s"), (0, "0s"), (120, "2m")]
)
def test_durations_are_shown_in_a_form_that_can_be_given_back(seconds, shown):
    """What `show` prints is what `change` takes."""
    assert render({"visibility": seconds}) == f"visibility  {shown}"


def test_numbers_are_shown_without_a_fraction_they_do_not_have():
    """A limit of 100.0 messages looks like a measurement."""
    assert render({"rateLimit": {"rate": 100.0, "burst": 2.5}, "body": "1.0"}) == (
        "rate limit  rate=100 burst=2.5\nbody        1.0"
    )


def test_an_empty_list_says_so():
    """Nothing at all looks like a command that failed."""
    assert render({"items": []}) == "(none)"


def test_a_list_stands_as_a_table_below_the_single_values():
    """The sum first, then where it comes from."""
    shown = render({"lag": 3, "queues": [{"queue": "local:0", "max": 60}]})

    assert shown == "lag  3\n\nQUEUE    MAX\nlocal:0  60"


def test_text_from_strangers_cannot_steer_the_terminal():
    """A message body may hold escape sequences, and a reader's terminal obeys them."""
    message = {
        "queue": "local:0",
        "offset": 7,
        "storedAt": "2030-01-01T00:00:00.000Z",
        "body": "a\x1b[2Jb\nc",
    }

    assert as_line(message) == b"local:0@7  2030-01-01T00:00:00.000Z  a\\x1b[2Jb\\nc\n"
    assert "\x1b" not in render({"reason": "\x1b]0;title\x07"})


def test_a_line_tells_what_a_message_carries_and_that_it_came_again():
    """Key, tag, properties and a repeated delivery are what one looks for when something is odd."""
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


def test_bodies_alone_are_printed_byte_for_byte():
    """Whoever asks for bodies pipes them into a program."""
    assert as_body({"bodyBase64": "//4="}) == b"\xff\xfe\n"
    assert as_body({"body": "a\x1b"}) == b"a\x1b\n"
