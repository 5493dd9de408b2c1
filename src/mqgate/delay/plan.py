"""The due time of a message. Pure."""

from datetime import datetime, timedelta

from mqgate.core.errors import InvalidValue


def plan(delay: timedelta | None, deliver_at: datetime | None, now: datetime, longest: timedelta) -> datetime | None:
    """Return the due time, or None for now. Raise InvalidValue beyond the limit; the time is never clamped."""
    if delay is not None and deliver_at is not None:
        raise InvalidValue("provide either delay or deliverAt", field="deliverAt")
    due = now + delay if delay is not None else deliver_at
    if due is None or due <= now:
        return None
    if due > now + longest:
        field = "delay" if delay is not None else "deliverAt"
        raise InvalidValue(
            f"{field} must be at most {longest.days} days ahead", field=field, limit=longest.total_seconds()
        )
    return due
