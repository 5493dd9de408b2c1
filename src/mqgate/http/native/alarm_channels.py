"""Channels of notifications, their state, and the inbox. URLs and secrets are never returned."""

from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mqgate.control.alerts.service import AlarmService
from mqgate.core.alarms import Channel, ChannelKind, ChannelState, Notification
from mqgate.core.times import format_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.native.alarms import AlarmOut, alarm_out
from mqgate.http.native.registry import ListQuery, check_limit, page
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe
from mqgate.ports.alarm_store import AlarmStore

__all__ = ["AlarmChannelsApi"]


class ChannelIn(Struct, forbid_unknown_fields=True):
    kind: Literal["apprise", "webhook"]
    url: str
    secret: str = ""
    enabled: bool = True


class ChannelOut(Struct, rename="camel"):
    name: str
    kind: str
    url: str
    enabled: bool
    pending: int
    failed: int
    last_sent_at: str | None
    error: str | None


class ChannelsOut(Struct):
    items: list[ChannelOut]
    next: str | None


class ChannelTestOut(Struct):
    outcome: Literal["sent", "failed"]
    error: str | None


class NotificationOut(Struct):
    id: str
    at: str
    kind: str
    rule: str
    title: str
    text: str
    count: int
    alarms: list[AlarmOut]


class NotificationsOut(Struct):
    items: list[NotificationOut]
    next: str | None


_channel_in = msgspec.json.Decoder(ChannelIn)


class AlarmChannelsApi:
    def __init__(self, service: AlarmService, store: AlarmStore) -> None:
        self._service = service
        self._store = store

    @describe("listAlarmChannels", "alarms", query=ListQuery, responses={200: ChannelsOut})
    async def list(self, request: Request) -> Response:
        """List the channels and what happened to their notifications."""
        states = {state.channel: state for state in await self._store.channel_states()}
        channels = (await self._service.settings()).channels
        return page(request, channels, lambda channel: _channel_out(channel, states.get(channel.name)))

    @describe(
        "putAlarmChannel",
        "alarms",
        request_type=ChannelIn,
        responses={200: ChannelOut, 201: ChannelOut},
        errors=(507,),
    )
    async def put(self, request: Request) -> Response:
        """Create or replace a channel."""
        given = decode(request.body, _channel_in)
        channel = Channel(
            name=request.path("channel"),
            kind=ChannelKind(given.kind),
            url=given.url,
            secret=given.secret,
            is_enabled=given.enabled,
        )
        is_new = await self._service.put_channel(channel, request.principal.name)
        states = {state.channel: state for state in await self._store.channel_states()}
        return reply(201 if is_new else 200, _channel_out(channel, states.get(channel.name)))

    @describe("deleteAlarmChannel", "alarms", responses={204: None}, errors=(404, 507))
    async def delete(self, request: Request) -> Response:
        """Delete a channel. Its pending notifications are given up."""
        await self._service.remove_channel(request.path("channel"), request.principal.name)
        return Response(204)

    @describe("testAlarmChannel", "alarms", responses={200: ChannelTestOut}, errors=(404,))
    async def test(self, request: Request) -> Response:
        """Send a test notification to a channel now."""
        error = await self._service.test_channel(request.path("channel"))
        return reply(200, ChannelTestOut("sent" if error is None else "failed", error))

    @describe("alarmInbox", "alarms", query=ListQuery, responses={200: NotificationsOut})
    async def inbox(self, request: Request) -> Response:
        """List all notifications, newest first."""
        wanted = query(request, ListQuery)
        found, cursor = await self._store.notifications(check_limit(wanted.limit), wanted.cursor)
        return reply(200, NotificationsOut([_notification_out(item) for item in found], cursor))


def _channel_out(channel: Channel, state: ChannelState | None) -> ChannelOut:
    return ChannelOut(
        name=channel.name,
        kind=channel.kind,
        url=_masked(channel),
        enabled=channel.is_enabled,
        pending=state.pending if state else 0,
        failed=state.failed if state else 0,
        last_sent_at=maybe_instant(state.last_sent_at) if state else None,
        error=state.error if state else None,
    )


def _masked(channel: Channel) -> str:
    """Return the scheme of a URL, and the host of a webhook. The host of an apprise URL may be a token."""
    scheme = channel.url.partition("://")[0]
    host = urlsplit(channel.url).hostname if channel.kind is ChannelKind.WEBHOOK else None
    return f"{scheme}://{host}/***" if host else f"{scheme}://***"


def _notification_out(notification: Notification) -> NotificationOut:
    return NotificationOut(
        id=notification.id,
        at=format_instant(notification.at),
        kind=notification.kind,
        rule=notification.rule,
        title=notification.title,
        text=notification.text,
        count=notification.count,
        alarms=[alarm_out(alarm) for alarm in notification.alarms],
    )
