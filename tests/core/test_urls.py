"""Passwords in server URLs."""

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
def test_passwords_are_masked(text: str, shown: str) -> None:
    """Logs must not contain passwords. Other text stays readable where possible."""
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
def test_a_password_that_libpq_would_read_as_a_host_is_detected(url: str, can: bool) -> None:
    """The driver shows hosts and ports in its error messages."""
    assert can_show_hosts(url) is can
