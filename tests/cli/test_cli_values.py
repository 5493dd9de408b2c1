"""How settings are written on the command line."""

import pytest

from mqgate.cli.values import backoff, duration, given, maybe, rate_limit


@pytest.mark.parametrize(
    ("text", "value"), [("30", 30.0), ("1.5", 1.5), ("15m", "15m"), ("nan", "nan"), ("1e3", "1e3")]
)
def test_a_bare_number_is_seconds_and_all_else_is_left_to_the_gateway(text, value):
    """One grammar of durations, and no number that JSON cannot carry."""
    assert duration(text) == value


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

    assert given(rate_limit=lifted, max_attempts=None, client_ttl="1h") == {
        "rateLimit": None,
        "clientTtl": "1h",
    }


def test_a_topic_may_be_called_none():
    """The word is special only where a setting can be lifted."""
    assert given(topic="none") == {"topic": "none"}
