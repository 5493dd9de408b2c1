"""Use cases of operators: thresholds, silences and channels of alarms, and a test of a channel. Changes are audited."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mqgate.control.alerts.model import RULES
from mqgate.core.alarms import (
    AlarmSettings,
    Channel,
    ChannelKind,
    Notification,
    NotificationKind,
    RuleName,
    RuleOverride,
    Silence,
)
from mqgate.core.errors import AlarmRuleNotFound, ChannelNotFound, InvalidValue, SilenceNotFound
from mqgate.core.names import check_name
from mqgate.ports.alarm_channels import ChannelFailed, ChannelSender
from mqgate.ports.alarm_settings import AlarmSetting, AlarmSettingsStore

__all__ = ["AlarmService", "rule_name"]

MAX_SETTINGS = 1_000
_MAX_TEXT = 1_000
_MAX_SILENCE = timedelta(days=365)
# Records who changed what: actor, action, subject, reason, details.
Record = Callable[[str, str, str, str | None, object], Awaitable[None]]


class AlarmService:
    def __init__(
        self,
        settings: AlarmSettingsStore,
        senders: Mapping[ChannelKind, ChannelSender],
        record: Record,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = settings
        self._senders = senders
        self._record = record
        self._clock = clock

    async def settings(self) -> AlarmSettings:
        """Return all settings, without silences that have ended."""
        found = await self._store.load()
        now = self._clock()
        silences = {name: silence for name, silence in found.silences.items() if silence.ends_at > now}
        return replace(found, silences=silences)

    async def put_override(self, rule: RuleName, subject: str, changes: Mapping[str, Any], actor: str) -> RuleOverride:
        """Change settings of a rule, for one subject or for all (subject ""). None returns to the default."""
        if subject:
            if RULES[rule].subject == "deployment":
                raise InvalidValue(f"Rule {rule} concerns the deployment. Omit the subject.", field="subject")
            _check_text(subject, "subject")
        overrides = (await self._store.load()).overrides
        override = RuleOverride(rule=rule, subject=subject)
        override = replace(overrides.get(override.name, override), **changes)
        if override.threshold is not None and override.threshold < 0:
            raise InvalidValue("threshold must not be negative", field="threshold")
        self._check_room(overrides, override.name)
        await self._save(override, actor, "change", f"alarm rule {override.name.strip()}", _details(override))
        return override

    async def remove_override(self, rule: RuleName, subject: str, actor: str) -> None:
        """Return to the defaults, for one subject or for all."""
        override = RuleOverride(rule=rule, subject=subject)
        await self._store.remove(override)
        await self._record(actor, "reset", f"alarm rule {override.name.strip()}", None, {})

    async def add_silence(
        self, rule: RuleName | None, subject: str | None, ends_at: datetime, reason: str | None, actor: str
    ) -> Silence:
        """Suppress notifications until an instant. Silences that have ended are deleted."""
        now = self._clock()
        if not now < ends_at <= now + _MAX_SILENCE:
            raise InvalidValue("endsAt must be in the future, and at most a year away", field="endsAt")
        for text, field in ((subject, "subject"), (reason, "reason")):
            if text is not None:
                _check_text(text, field)
        found = await self._store.load()
        for ended in [silence for silence in found.silences.values() if silence.ends_at <= now]:
            await self._store.remove(ended)
        silence = Silence(
            name=secrets.token_hex(6),
            rule=rule,
            subject=subject,
            ends_at=ends_at,
            reason=reason,
            actor=actor,
            created_at=now,
        )
        self._check_room((await self.settings()).silences, silence.name)
        await self._save(silence, actor, "create", f"silence {silence.name}", _details(silence), reason)
        return silence

    async def remove_silence(self, name: str, actor: str) -> None:
        silence = (await self.settings()).silences.get(name)
        if silence is None:
            raise SilenceNotFound(f"Silence {name} does not exist or has ended. List the silences.")
        await self._store.remove(silence)
        await self._record(actor, "delete", f"silence {name}", None, {})

    async def put_channel(self, channel: Channel, actor: str) -> bool:
        """Create or replace a channel. Return whether it is new. An empty secret keeps the stored one."""
        check_name(channel.name, "channel")
        found = (await self._store.load()).channels
        old = found.get(channel.name)
        self._check_room(found, channel.name)
        if old is not None and old.kind is channel.kind and not channel.secret:
            channel = replace(channel, secret=old.secret)
        await self._sender(channel.kind).check(channel)
        # The audit log is read by more people than may know the URL.
        details = {"kind": channel.kind, "enabled": channel.is_enabled}
        await self._save(channel, actor, "create" if old is None else "change", f"channel {channel.name}", details)
        return old is None

    async def remove_channel(self, name: str, actor: str) -> None:
        channel = await self.channel(name)
        await self._store.remove(channel)
        await self._record(actor, "delete", f"channel {name}", None, {})

    async def channel(self, name: str) -> Channel:
        found = (await self._store.load()).channels.get(name)
        if found is None:
            raise ChannelNotFound(f"Channel {name} does not exist. List the channels.", channel=name)
        return found

    async def test_channel(self, name: str) -> str | None:
        """Send a test notification now. Return the error, or None if it was accepted."""
        channel = await self.channel(name)
        notification = Notification(
            id=f"test-{secrets.token_hex(8)}",
            at=self._clock(),
            kind=NotificationKind.FIRING,
            rule=RuleName.BACKLOG_COUNT,
            title="[TEST] mqgate",
            text=f"This is a test of the channel {name}. No alarm fires.",
            count=0,
            alarms=(),
        )
        try:
            await self._sender(channel.kind).send(channel, notification)
        except ChannelFailed as failed:
            return str(failed)
        return None

    def _sender(self, kind: ChannelKind) -> ChannelSender:
        if kind not in self._senders:
            raise InvalidValue('apprise is not installed on the gateway: pip install "mqgate[alerts]"', field="kind")
        return self._senders[kind]

    async def _save(
        self, setting: AlarmSetting, actor: str, action: str, subject: str, details: object, reason: str | None = None
    ) -> None:
        await self._store.save(setting)
        await self._record(actor, action, subject, reason, details)

    @staticmethod
    def _check_room(settings: Mapping[str, Any], name: str) -> None:
        if name not in settings and len(settings) >= MAX_SETTINGS:
            raise InvalidValue(f"at most {MAX_SETTINGS} are possible. Delete others first.", limit=MAX_SETTINGS)


def rule_name(text: str) -> RuleName:
    """Return the rule of this name. Raise AlarmRuleNotFound if there is none."""
    if text not in set(RuleName):
        raise AlarmRuleNotFound(f"Rule {text[:100]} does not exist. Rules: {', '.join(RuleName)}.")
    return RuleName(text)


def _details(setting: AlarmSetting) -> object:
    return msgspec.to_builtins(setting)


def _check_text(text: str, field: str) -> None:
    if not text or len(text) > _MAX_TEXT:
        raise InvalidValue(f"{field} must have 1 to {_MAX_TEXT} characters", field=field, limit=_MAX_TEXT)
