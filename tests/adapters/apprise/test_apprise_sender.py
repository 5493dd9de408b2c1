"""Channels of apprise, tested with its JSON service on loopback."""

import pytest

from mqgate.adapters.apprise.sender import AppriseSender
from mqgate.core.alarms import Channel, ChannelKind, Notification, NotificationKind, RuleName
from mqgate.core.errors import InvalidValue
from mqgate.ports.alarm_channels import ChannelFailed
from mqgate.testing.clock import NOON
from webhook_receiver import webhook_receiver


def channel(url: str, secret: str = "") -> Channel:
    return Channel(name="chat", kind=ChannelKind.APPRISE, url=url, secret=secret)


def notification(kind: NotificationKind) -> Notification:
    return Notification(
        id="n1",
        at=NOON,
        kind=kind,
        rule=RuleName.BACKLOG_COUNT,
        title="[FIRING] backlog count",
        text="- billing: 12",
        count=1,
        alarms=(),
    )


@pytest.mark.parametrize(
    ("kind", "shown"), [(NotificationKind.FIRING, "warning"), (NotificationKind.RESOLVED, "success")]
)
async def test_the_service_gets_title_text_and_kind(kind: NotificationKind, shown: str) -> None:
    """Chat services show them in different colours."""
    with webhook_receiver() as receiver:
        url = receiver.url.replace("http://", "json://")

        await AppriseSender().send(channel(url), notification(kind))

        (request,) = receiver.requests
        assert request.json["title"] == "[FIRING] backlog count"
        assert request.json["message"] == "- billing: 12"
        assert request.json["type"] == shown


async def test_a_service_that_refuses_is_a_failure() -> None:
    """The notification is sent again later."""
    with webhook_receiver() as receiver:
        receiver.status = 500
        url = receiver.url.replace("http://", "json://")

        with pytest.raises(ChannelFailed):
            await AppriseSender().send(channel(url), notification(NotificationKind.FIRING))


async def test_a_plugin_that_raises_is_a_failure_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins are code of others. An exception must not end the evaluation, and its text may have the URL."""

    def broken(*_: object, **__: object) -> bool:
        raise TypeError("slack://secret")

    monkeypatch.setattr("apprise.Apprise.notify", broken)

    with pytest.raises(ChannelFailed) as failed:
        await AppriseSender().send(channel("json://ops.example"), notification(NotificationKind.FIRING))

    assert str(failed.value) == "apprise failed: TypeError"


async def test_apprise_logs_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Its log lines contain URLs, and URLs contain tokens."""
    with caplog.at_level("DEBUG"), webhook_receiver() as receiver:
        with pytest.raises(InvalidValue):
            await AppriseSender().check(channel("slack://hidden-token"))
        with pytest.raises(InvalidValue):
            await AppriseSender().check(channel("unknown://hidden-token"))
        url = receiver.url.replace("http://", "json://user:hidden-token@")
        await AppriseSender().send(channel(url), notification(NotificationKind.FIRING))

    assert "hidden-token" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("url", "secret", "field"),
    [("nonsense", "", "url"), ("unknown://x", "", "url"), ("", "", "url"), ("json://example.org", "secret", "secret")],
)
async def test_an_unusable_channel_is_refused(url: str, secret: str, field: str) -> None:
    """The mistake is reported when the channel is set, not when an alarm fires."""
    with pytest.raises(InvalidValue) as refused:
        await AppriseSender().check(channel(url, secret))

    assert refused.value.members["field"] == field
