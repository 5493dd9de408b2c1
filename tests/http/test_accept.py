"""Content negotiation with the Accept header."""

import pytest

from mqgate.core.errors import NotAcceptable
from mqgate.http.accept import choose

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (JSON, JSON),
        (ARROW, ARROW),
        (ARROW.upper(), ARROW),
        (f"{ARROW}; charset=binary", ARROW),
        (f"{ARROW}, */*", ARROW),
        (f"*/*, {ARROW}", ARROW),
        (f"{ARROW};q=0.5, */*", JSON),
        (f"{JSON};q=0.5, {ARROW};q=0.6", ARROW),
        (f"{JSON}, {ARROW}", JSON),
        (f"{JSON};q=0, */*", ARROW),
        (f"text/html, nonsense, {ARROW};q=1.0", ARROW),
        (f"{JSON};q=x, {ARROW}", ARROW),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON),
    ],
)
def test_the_type_with_the_highest_quality_is_chosen(accept: str | None, chosen: str) -> None:
    """Browsers, curl and libraries without a preference get JSON."""
    assert choose(accept, (JSON, ARROW)) == chosen


@pytest.mark.parametrize("accept", ["text/html", "text/*", f"{ARROW};q=0", f"{JSON};q=0", "*/*;q=0", "nonsense", ";,"])
def test_an_accept_header_without_a_match_is_refused(accept: str) -> None:
    """The client could not read any available type."""
    with pytest.raises(NotAcceptable, match=ARROW):
        choose(accept, (JSON, ARROW))
