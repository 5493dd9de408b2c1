"""Alarms: what fires, thresholds, silences, channels and notifications."""

from collections.abc import Mapping
from typing import Any

from mqgate.client.caller import Caller
from mqgate.client.requests import Call, Instant, Json, delete, get, given, path, post, put

__all__ = ["AsyncAlarms"]


class AsyncAlarms:
    """Calls of `/v1/alarms`. Lists return one page: `items`, and `next` if there are more."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(
        self,
        *,
        state: str | None = None,
        rule: str | None = None,
        subject: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """List pending and firing alarms."""
        query = {"state": state, "rule": rule, "subject": subject, "limit": limit, "cursor": cursor}
        return await self._caller.call(get("alarms", **query))

    async def history(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """List all alarms, newest first."""
        return await self._caller.call(get("alarms", "history", limit=limit, cursor=cursor))

    async def inbox(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """List all notifications, newest first."""
        return await self._caller.call(get("alarms", "inbox", limit=limit, cursor=cursor))

    async def rules(self) -> Json:
        return await self._caller.call(get("alarms", "rules"))

    async def put_rule(self, rule: str, settings: Mapping[str, Any], subject: str | None = None) -> Json:
        """Change `threshold`, `for` or `enabled` of a rule, for all or for one group, topic or pipeline."""
        return await self._caller.call(put(settings, *_rule(rule, subject)))

    async def reset_rule(self, rule: str, subject: str | None = None) -> Json:
        """Return to the defaults."""
        return await self._caller.call(delete(*_rule(rule, subject)))

    async def silences(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        return await self._caller.call(get("alarms", "silences", limit=limit, cursor=cursor))

    async def silence(
        self, ends_at: Instant, *, rule: str | None = None, subject: str | None = None, reason: str | None = None
    ) -> Json:
        """Suppress notifications until an instant."""
        body = given(endsAt=ends_at, rule=rule, subject=subject, reason=reason)
        return await self._caller.call(post(body, "alarms", "silences", is_repeatable=False))

    async def end_silence(self, silence: str) -> Json:
        return await self._caller.call(delete("alarms", "silences", silence))

    async def channels(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        return await self._caller.call(get("alarms", "channels", limit=limit, cursor=cursor))

    async def put_channel(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create or replace a channel: `kind`, `url`, `secret`, `enabled`."""
        return await self._caller.call(put(settings, "alarms", "channels", name))

    async def delete_channel(self, name: str) -> Json:
        return await self._caller.call(delete("alarms", "channels", name))

    async def test_channel(self, name: str) -> Json:
        """Send a test notification now. Return `outcome` and `error`."""
        return await self._caller.call(
            Call(method="POST", path=path("alarms", "channels", name, "test"), is_repeatable=False)
        )


def _rule(rule: str, subject: str | None) -> tuple[str, ...]:
    return ("alarms", "rules", rule) if subject is None else ("alarms", "rules", rule, "subjects", subject)
