"""Scheduled messages."""

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
        """Return one page of scheduled messages, the next one first, due at `since` or later and before `until`."""
        query = {"topic": topic, "from": since, "to": until, "limit": limit, "cursor": cursor}
        return self._transport.call("GET", path("scheduled"), query=query)

    def get(self, message_id: str) -> Json:
        """Return one message with its body. Its state remains available for a while after delivery or cancellation."""
        return self._transport.call("GET", path("scheduled", message_id))

    def cancel(self, message_id: str) -> Json:
        """Cancel the message. The call may be repeated, and is refused after delivery."""
        return self._transport.call("DELETE", path("scheduled", message_id))

    def retime(self, message_id: str, *, delay: Duration | None = None, deliver_at: Instant | None = None) -> Json:
        """Change the delivery time. `delay` counts from now."""
        body = given(delay=delay, deliverAt=deliver_at)
        return self._transport.call("PATCH", path("scheduled", message_id), body)
