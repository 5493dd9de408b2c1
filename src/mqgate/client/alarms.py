"""Alarms: what fires, thresholds, silences, channels and notifications."""

from collections.abc import Mapping
from typing import Any

from mqgate.client.transport import Instant, Json, Transport, given, path

__all__ = ["Alarms"]


class Alarms:
    """Calls of `/v1/alarms`. Lists return one page: `items`, and `next` if there are more."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, **query: Any) -> Json:
        """List pending and firing alarms; `query` may have state, rule, subject, limit and cursor."""
        return self._transport.call("GET", path("alarms"), query=query)

    def history(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """List all alarms, newest first."""
        return self._transport.call("GET", path("alarms", "history"), query={"limit": limit, "cursor": cursor})

    def inbox(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """List all notifications, newest first."""
        return self._transport.call("GET", path("alarms", "inbox"), query={"limit": limit, "cursor": cursor})

    def rules(self) -> Json:
        return self._transport.call("GET", path("alarms", "rules"))

    def put_rule(self, rule: str, settings: Mapping[str, Any], subject: str | None = None) -> Json:
        """Change `threshold`, `for` or `enabled` of a rule, for all or for one group, topic or pipeline."""
        return self._transport.call("PUT", _rule(rule, subject), settings)

    def reset_rule(self, rule: str, subject: str | None = None) -> Json:
        """Return to the defaults."""
        return self._transport.call("DELETE", _rule(rule, subject))

    def silences(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        return self._transport.call("GET", path("alarms", "silences"), query={"limit": limit, "cursor": cursor})

    def silence(
        self, ends_at: Instant, *, rule: str | None = None, subject: str | None = None, reason: str | None = None
    ) -> Json:
        """Suppress notifications until an instant."""
        body = given(endsAt=ends_at, rule=rule, subject=subject, reason=reason)
        return self._transport.call("POST", path("alarms", "silences"), body)

    def end_silence(self, silence: str) -> Json:
        return self._transport.call("DELETE", path("alarms", "silences", silence))

    def channels(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        return self._transport.call("GET", path("alarms", "channels"), query={"limit": limit, "cursor": cursor})

    def put_channel(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create or replace a channel: `kind`, `url`, `secret`, `enabled`."""
        return self._transport.call("PUT", path("alarms", "channels", name), settings)

    def delete_channel(self, name: str) -> Json:
        return self._transport.call("DELETE", path("alarms", "channels", name))

    def test_channel(self, name: str) -> Json:
        """Send a test notification now. Return `outcome` and `error`."""
        return self._transport.call("POST", path("alarms", "channels", name, "test"))


def _rule(rule: str, subject: str | None) -> str:
    return path("alarms", "rules", rule) if subject is None else path("alarms", "rules", rule, "subjects", subject)
