"""Passwords in addresses of servers."""

import pytest

from mqgate.core.urls import can_show_hosts, mask_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lost redis://ada:hunter2@h:6379/0 again", "lost redis://ada:***@h:6379/0 again"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("postgresql://ada:hun@ter2@h/db", "postgresql://ada:***@h/db"),
        ("postgresql://ada:hun/ter2@h/db", "postgresql://ada:***@h/db"),
        ("user=ada password=hunter2 host=h", "user=ada password=*** host=h"),
        (r"password='hun\'ter 2' host=h", "password=*** host=h"),
        ("postgresql://h/db?user=ada&password=hunter2&port=1", "postgresql://h/db?user=ada&password=***&port=1"),
        ("http://h:8080/a@b", "http://h:***@b"),
        ("wrong password for user ada", "wrong password for user ada"),
    ],
)
def test_a_password_is_never_shown(text: str, shown: str) -> None:
    """Whatever else is in the line stays readable; in doubt too much is masked."""
    assert mask_passwords(text) == shown


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("postgresql://ada:hunter2@h:5432/db", True),
        ("postgresql://ada:hun%40ter2@h1:5432,h2:5433,[::1]:5434/db?target_session_attrs=any", True),
        ("postgresql://ada:hun?ter#2@h/db", True),
        ("postgresql:///db?host=/tmp&password=a@b", True),
        ("postgresql://%2Ftmp/db", True),
        ("host=h password=a@b/c", True),
        ("postgresql://ada:hun@ter2@h/db", False),
        ("postgresql://ada:hun/ter2@h/db", False),
    ],
)
def test_a_password_that_libpq_would_take_for_a_host_is_found(url: str, can: bool) -> None:
    """The driver names hosts and ports when it cannot connect."""
    assert can_show_hosts(url) is can
