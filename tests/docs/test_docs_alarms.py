"""The page on alarms: what it shows about webhooks is what the gateway sends."""

import json
import time
from collections.abc import Callable
from typing import Any

from doc_pages import ROOT, blocks

from mqgate.adapters.webhook.sender import _body, sign
from mqgate.core.alarms import Notification, NotificationKind, RuleName
from mqgate.testing.alarm_store_contract import alarm
from mqgate.testing.clock import NOON

PAGE = ROOT / "docs" / "how-to" / "get-alarms.md"
SECRET = "correct horse battery"


def is_genuine() -> Callable[[str, dict[str, str], bytes], bool]:
    """Return the function of the page."""
    (source,) = blocks(PAGE, "python")
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102 - our own page
    found: Callable[[str, dict[str, str], bytes], bool] = names["is_genuine"]
    return found


def signed(body: bytes, at: float, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(at))
    return {"mqgate-timestamp": timestamp, "mqgate-signature": sign(secret, timestamp, body)}


def test_the_shown_verification_accepts_what_a_gateway_sends() -> None:
    """Receivers paste it."""
    assert is_genuine()(SECRET, signed(b"{}", time.time()), b"{}")


def test_the_shown_verification_refuses_everything_else() -> None:
    """Another body, another secret, another time stamp, and an old request."""
    now = time.time()
    check = is_genuine()

    assert not check(SECRET, signed(b"{}", now), b"{ }")
    assert not check(SECRET, signed(b"{}", now, "another secret"), b"{}")
    assert not check(SECRET, signed(b"{}", now) | {"mqgate-timestamp": str(int(now) - 1)}, b"{}")
    assert not check(SECRET, signed(b"{}", now - 3_600), b"{}")


def test_the_shown_body_has_the_members_of_a_webhook() -> None:
    """A receiver is written from the page."""
    notification = Notification(
        id="n",
        at=NOON,
        kind=NotificationKind.FIRING,
        rule=RuleName.BACKLOG_COUNT,
        title="t",
        text="t",
        count=1,
        alarms=(alarm(),),
    )
    (text,) = blocks(PAGE, "json")
    shown = json.loads(text)

    sent = _body(notification)

    assert shown.keys() == sent.keys()
    assert shown["alarms"][0].keys() == sent["alarms"][0].keys()
