"""How settings are written on the command line."""

from datetime import timedelta

import click
import pytest

from mqgate.cli.values import LIFTED, backoff, duration, given, instant, maybe, rate_limit, wait


@pytest.mark.parametrize(
    ("text", "value"), [("30", 30.0), ("1.5", 1.5), ("15m", "15m"), ("nan", "nan"), ("1e3", "1e3")]
)
def test_a_bare_number_is_seconds_and_all_else_is_left_to_the_gateway(text, value):
    """One grammar of durations, and no number that JSON cannot carry."""
    assert duration(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1893456000000", 1_893_456_000_000), ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z")]
)
def test_an_instant_of_digits_is_milliseconds_and_all_else_is_left_to_the_gateway(text, value):
    """In JSON the two forms are a number and a text."""
    assert instant(text) == value


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("2.5", 2.5), ("1500ms", 1.5), ("60s", 60), ("1m", 60)])
def test_a_wait_is_written_like_every_other_duration(text, seconds):
    """Somebody who learned 30s for one option uses it for the next."""
    assert wait(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["61", "2m", "-1", "soon", ""])
def test_a_wait_that_no_gateway_takes_is_refused_here(text):
    """Our own patience is made of it, so it cannot be left to the gateway."""
    with pytest.raises(click.BadParameter):
        wait(text)


def test_a_rate_may_name_its_burst():
    """The API takes a number or both."""
    assert rate_limit("100") == 100.0
    assert rate_limit("100:500") == {"rate": 100.0, "burst": 500.0}


def test_a_backoff_is_a_list_or_a_curve():
    """The API takes either."""
    assert backoff("1s, 5s,30") == ["1s", "5s", 30.0]
    assert backoff("initial=1s,factor=2,max=10m,jitter=0.2") == {
        "initial": "1s",
        "factor": 2.0,
        "max": "10m",
        "jitter": 0.2,
    }


def test_only_what_was_written_is_sent_and_none_lifts_a_setting():
    """Leaving an option out must not change anything; `none` must."""
    lifted = maybe(rate_limit)("none")

    assert given(rate_limit=lifted, filter=LIFTED, max_attempts=None, client_ttl="1h") == {
        "rateLimit": None,
        "filter": None,
        "clientTtl": "1h",
    }


def test_a_topic_may_be_called_none():
    """The word is special only where a setting can be lifted."""
    assert given(topic="none") == {"topic": "none"}
