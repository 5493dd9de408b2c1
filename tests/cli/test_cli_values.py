"""Values on the command line."""

from datetime import timedelta

import click
import pytest

from mqgate.cli.values import LIFTED, backoff, duration, given, instant, maybe, rate_limit, wait


@pytest.mark.parametrize(
    ("text", "value"), [("30", 30.0), ("1.5", 1.5), ("15m", "15m"), ("nan", "nan"), ("1e3", "1e3")]
)
def test_a_bare_number_is_seconds_and_other_texts_are_sent_unchanged(text, value):
    """There is one grammar of durations, in the gateway."""
    assert duration(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1893456000000", 1_893_456_000_000), ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z")]
)
def test_an_instant_of_digits_is_milliseconds_and_other_texts_are_sent_unchanged(text, value):
    """In JSON the two forms are a number and a string."""
    assert instant(text) == value


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("2.5", 2.5), ("1500ms", 1.5), ("60s", 60), ("1m", 60)])
def test_a_wait_is_written_like_every_other_duration(text, seconds):
    """Users expect one form of durations for all options."""
    assert wait(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["61", "2m", "-1", "soon", ""])
def test_a_wait_above_the_limit_is_a_usage_error(text):
    """The read time-out of the client depends on it, so the client must check it."""
    with pytest.raises(click.BadParameter):
        wait(text)


def test_a_rate_may_have_a_burst():
    """The API accepts a number or both."""
    assert rate_limit("100") == 100.0
    assert rate_limit("100:500") == {"rate": 100.0, "burst": 500.0}


def test_a_backoff_is_a_list_or_a_curve():
    """The API accepts either."""
    assert backoff("1s, 5s,30") == ["1s", "5s", 30.0]
    assert backoff("initial=1s,factor=2,max=10m,jitter=0.2") == {
        "initial": "1s",
        "factor": 2.0,
        "max": "10m",
        "jitter": 0.2,
    }


def test_only_given_options_are_sent_and_none_removes_a_setting():
    """An omitted option must not change a setting."""
    lifted = maybe(rate_limit)("none")

    assert given(rate_limit=lifted, filter=LIFTED, max_attempts=None, client_ttl="1h") == {
        "rateLimit": None,
        "filter": None,
        "clientTtl": "1h",
    }


def test_a_topic_may_be_called_none():
    """The word is special only for settings that can be removed."""
    assert given(topic="none") == {"topic": "none"}
