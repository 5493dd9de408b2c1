"""Messages that wait for their time."""

from mqgate.client.transport import Duration, Instant, Json, Transport, given, path

__all__ = ["Scheduled"]


class Scheduled:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        topic: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """One page of what is still to come, the next one first; due at `since` or later, before `until`."""
        query = {"topic": topic, "from": since, "to": until, "limit": limit, "cursor": cursor}
        return self._transport.call("GET", path("scheduled"), query=query)

    def get(self, message_id: str) -> Json:
        """One message with its body, and for a while after it was delivered or cancelled what became of it."""
        return self._transport.call("GET", path("scheduled", message_id))

    def cancel(self, message_id: str) -> Json:
        """Never deliver it; may be repeated, and is refused if the message was delivered before."""
        return self._transport.call("DELETE", path("scheduled", message_id))

    def retime(self, message_id: str, *, delay: Duration | None = None, deliver_at: Instant | None = None) -> Json:
        """Deliver it at another time; `delay` is counted from now."""
        body = given(delay=delay, deliverAt=deliver_at)
        return self._transport.call("PATCH", path("scheduled", message_id), body)
