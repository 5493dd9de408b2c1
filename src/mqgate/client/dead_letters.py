"""Dead letters of groups."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from mqgate.client.transport import Instant, Json, Transport, given, path

__all__ = ["DeadLetters"]

# A gateway refuses a redrive that would take longer at the given rate.
_MAX_REDRIVE = timedelta(seconds=60)
_NO_WAIT = timedelta(0)


class DeadLetters:
    """Dead letters of groups. Redrive and purge accept 1 to 1,000 `ids`, or `is_all` for the oldest 1,000."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        group: str,
        *,
        key: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """Return one page, oldest first, dead-lettered at `since` or later and before `until`."""
        query = {"key": key, "from": since, "to": until, "limit": limit, "cursor": cursor}
        return self._transport.call("GET", path("groups", group, "dead-letters"), query=query)

    def get(self, group: str, message_id: str) -> Json:
        """Return one dead letter with its body."""
        return self._transport.call("GET", path("groups", group, "dead-letters", message_id))

    def redrive(
        self,
        group: str,
        ids: Sequence[str] = (),
        *,
        is_all: bool = False,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Deliver dead letters to their group again, at most `rate` per second. `results` has one outcome per id."""
        wait = _NO_WAIT if rate is None else _MAX_REDRIVE
        return self._act(group, "redrive", ids, is_all, dry_run, wait=wait, rate=rate)

    def purge(self, group: str, ids: Sequence[str] = (), *, is_all: bool = False, dry_run: bool = False) -> Json:
        """Delete dead letters. `results` has one outcome per id."""
        return self._act(group, "purge", ids, is_all, dry_run)

    def _act(
        self,
        group: str,
        verb: str,
        ids: Sequence[str],
        is_all: bool,
        dry_run: bool,
        wait: timedelta = _NO_WAIT,
        **more: Any,
    ) -> Json:
        if isinstance(ids, str):
            raise TypeError("ids must be a sequence of ids, not a string")
        body = given(ids=[*ids] or None, all=is_all or None, dryRun=dry_run or None, **more)
        return self._transport.call("POST", path("groups", group, "dead-letters", verb), body, wait=wait)
