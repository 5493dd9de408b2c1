"""Parsing and formatting of durations and instants."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.errors import InvalidValue
from mqgate.core.message import instant, milliseconds
from mqgate.core.times import format_instant, parse_duration, parse_instant


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500ms", 1.5), ("30s", 30), ("15m", 900), ("2h", 7_200), ("10d", 864_000), (0, 0), (1.5, 1.5), ("0s", 0)],
)
def test_durations_are_seconds_or_text(text: float | str, seconds: float) -> None:
    """Clients may use both notations of api.md."""
    assert parse_duration(text, "wait") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "1",
        "1.5s",
        "-1s",
        "1 s",
        "1S",
        "1w",
        "१s",
        "9" * 13 + "s",
        -1,
        -0.001,
        1e300,
        float("inf"),
        float("nan"),
    ],
)
def test_an_invalid_duration_is_rejected_with_its_field(text: float | str) -> None:
    """A wrong value must be reported, not clamped or guessed."""
    with pytest.raises(InvalidValue) as refused:
        parse_duration(text, "wait")

    assert refused.value.members["field"] == "wait"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31t12:00:00z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:00.5+02:00", datetime(2026, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-31T12:00:00.123456789Z", datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_767_225_600_000, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_instants_are_rfc_3339_or_milliseconds(text: int | str, found: datetime) -> None:
    """Clients may use both notations of api.md. The zone is required."""
    assert parse_instant(text, "to") == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T25:00:00Z",
        "0001-01-01T00:00:00+23:59",
        -1,
        1 << 60,
    ],
)
def test_an_invalid_instant_is_rejected(text: int | str) -> None:
    """A time without a zone is ambiguous."""
    with pytest.raises(InvalidValue):
        parse_instant(text, "to")


@given(st.integers(0, 253_402_300_799_999))
def test_formatted_instants_parse_to_the_same_instant(ms: int) -> None:
    """Milliseconds must survive the round trip."""
    found = instant(ms)

    assert parse_instant(format_instant(found), "to") == found
    assert milliseconds(found) == ms
