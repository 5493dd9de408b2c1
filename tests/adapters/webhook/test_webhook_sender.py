"""Webhooks are signed, go to the configured URL only, and report errors without secrets."""

import hashlib
import hmac
from collections.abc import Iterator

import pytest

from mqgate.adapters.webhook.sender import WebhookSender
from mqgate.core.alarms import Channel, ChannelKind, Notification, NotificationKind, RuleName
from mqgate.core.errors import InvalidValue
from mqgate.ports.alarm_channels import ChannelFailed
from mqgate.testing.alarm_store_contract import alarm
from mqgate.testing.clock import NOON
from webhook_receiver import WebhookReceiver, webhook_receiver

SECRET = "correct horse battery"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as receiver:
        yield receiver


def channel(url: str, secret: str = SECRET) -> Channel:
    return Channel(name="ops", kind=ChannelKind.WEBHOOK, url=url, secret=secret)


def notification() -> Notification:
    return Notification(
        id="n1",
        at=NOON,
        kind=NotificationKind.FIRING,
        rule=RuleName.BACKLOG_COUNT,
        title="[FIRING] ü",
        text="text",
        count=1,
        alarms=(alarm(),),
    )


async def test_a_webhook_has_the_notification_and_a_signature(receiver: WebhookReceiver) -> None:
    """The receiver can check who sent it and when, and ignore an id that it knows."""
    await WebhookSender(lambda: 1_767_268_800.9).send(channel(receiver.url), notification())

    (request,) = receiver.requests
    expected = hmac.new(SECRET.encode(), b"1767268800." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["mqgate-signature"] == f"v1={expected}"
    assert request.headers["mqgate-timestamp"] == "1767268800"
    assert request.headers["mqgate-notification-id"] == request.json["id"] == "n1"
    assert request.json["title"] == "[FIRING] ü"
    assert request.json["alarms"][0]["subject"] == "group-1"


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
async def test_any_other_status_is_a_failure(receiver: WebhookReceiver, status: int) -> None:
    """The notification is sent again later."""
    receiver.status = status

    with pytest.raises(ChannelFailed, match=f"HTTP status {status}"):
        await WebhookSender().send(channel(receiver.url), notification())


async def test_redirects_are_not_followed(receiver: WebhookReceiver) -> None:
    """A receiver must not be able to send requests of the gateway elsewhere."""
    with webhook_receiver() as other:
        receiver.status, receiver.location = 307, other.url

        with pytest.raises(ChannelFailed):
            await WebhookSender().send(channel(receiver.url), notification())

        assert (other.requests, other.refused) == ([], 0)


async def test_proxies_of_the_environment_are_not_used(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go to the configured URL only."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    await WebhookSender().send(channel(receiver.url), notification())

    assert len(receiver.requests) == 1


async def test_an_error_contains_no_secret() -> None:
    """It is shown by the API and logged."""
    url = "http://user:password@127.0.0.1:1/token"

    with pytest.raises(ChannelFailed) as failed:
        await WebhookSender().send(channel(url), notification())

    assert not {"password", "token", SECRET} & set(str(failed.value).replace("/", " ").split())
    assert "password" not in str(failed.value)
    assert "password" not in repr(channel(url))
    assert SECRET not in repr(channel(url))


@pytest.mark.parametrize(
    ("url", "secret", "field"),
    [
        ("ftp://example.org", SECRET, "url"),
        ("https://", SECRET, "url"),
        ("http://[", SECRET, "url"),
        ("http://example.org:65536", SECRET, "url"),
        ("", SECRET, "url"),
        ("https://example.org", "", "secret"),
        ("https://example.org", "short", "secret"),
    ],
)
async def test_an_unusable_channel_is_refused(url: str, secret: str, field: str) -> None:
    """The mistake is reported when the channel is set, not when an alarm fires."""
    with pytest.raises(InvalidValue) as refused:
        await WebhookSender().check(channel(url, secret))

    assert refused.value.members["field"] == field
