"""The operations of the API under names and ids: registry, keys, dead letters and scheduled messages."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from mqgate.client.caller import Caller
from mqgate.client.requests import Duration, Instant, Json, create, delete, get, given, post, put
from mqgate.client.types import Page

__all__ = [
    "AsyncDeadLetters",
    "AsyncEntries",
    "AsyncGroups",
    "AsyncKeys",
    "AsyncScheduled",
    "every",
    "every_async",
]

# A gateway refuses a redrive that would take longer at the given rate.
_MAX_REDRIVE = 60.0


def every(page: Callable[..., Any]) -> Iterator[Any]:
    """Yield all items of a paged list: `every(client.topics.list)`."""
    cursor = None
    while True:
        response = page(cursor=cursor)
        yield from response["items"]
        cursor = response.get("next")
        if not cursor:
            return


async def every_async(page: Callable[..., Awaitable[Any]]) -> AsyncIterator[Any]:
    """Yield all items of a paged list of an AsyncClient: `every_async(client.topics.list)`."""
    cursor = None
    while True:
        response = await page(cursor=cursor)
        for item in response["items"]:
            yield item
        cursor = response.get("next")
        if not cursor:
            return


class AsyncKeys:
    """API keys, by id."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Json]:
        return _page(await self._caller.call(get("keys", limit=limit, cursor=cursor)))

    async def create(self, grant: Mapping[str, Any]) -> Json:
        """Create a key for `{"producer": p}`, `{"group": g}` or `{"role": "admin"}`. It is returned only once."""
        return await self._caller.call(post(grant, "keys", is_repeatable=False))

    async def delete(self, key_id: str) -> Json:
        return await self._caller.call(delete("keys", key_id))


class AsyncEntries:
    """Topics, producers, accounts or teams, by name. Settings have the names of the API."""

    def __init__(self, caller: Caller, kind: str) -> None:
        self._caller = caller
        self._kind = kind

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Json]:
        """Return one page."""
        return _page(await self._caller.call(get(self._kind, limit=limit, cursor=cursor)))

    async def put(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create the entry, or change the given settings. None removes a limit."""
        return await self._caller.call(put(settings, self._kind, name))

    async def create(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create the entry. Raise GatewayError if it exists."""
        return await self._caller.call(create(settings, self._kind, name))

    async def get(self, name: str) -> Json:
        return await self._caller.call(get(self._kind, name))

    async def delete(self, name: str) -> Json:
        return await self._caller.call(delete(self._kind, name))


class AsyncGroups(AsyncEntries):
    """Groups, by name."""

    async def patch(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Change the given settings of an existing group."""
        return await self._caller.call(put(settings, self._kind, name, method="PATCH"))


class AsyncDeadLetters:
    """Dead letters of groups. Redrive and purge accept 1 to 1,000 `ids`, or `is_all` for the oldest 1,000."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(
        self,
        group: str,
        *,
        key: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Json]:
        """Return one page, oldest first, dead-lettered at `since` or later and before `until`."""
        query = {"key": key, "from": since, "to": until, "limit": limit, "cursor": cursor}
        return _page(await self._caller.call(get("groups", group, "dead-letters", **query)))

    async def get(self, group: str, message_id: str) -> Json:
        """Return one dead letter with its body."""
        return await self._caller.call(get("groups", group, "dead-letters", message_id))

    async def redrive(
        self,
        group: str,
        ids: Sequence[str] = (),
        *,
        is_all: bool = False,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Deliver dead letters to their group again, at most `rate` per second. `results` has one outcome per id."""
        body = _selection(ids, is_all, dry_run) | given(rate=rate)
        wait = 0.0 if rate is None else _MAX_REDRIVE
        # The ids of a repeated `all` would be those of other messages, and the outcomes of the first call lost.
        return await self._caller.call(
            post(body, "groups", group, "dead-letters", "redrive", wait=wait, is_repeatable=False)
        )

    async def purge(self, group: str, ids: Sequence[str] = (), *, is_all: bool = False, dry_run: bool = False) -> Json:
        """Delete dead letters. `results` has one outcome per id."""
        body = _selection(ids, is_all, dry_run)
        return await self._caller.call(post(body, "groups", group, "dead-letters", "purge", is_repeatable=False))


class AsyncScheduled:
    """Scheduled messages."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def list(
        self,
        *,
        topic: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Json]:
        """Return one page of scheduled messages, the next one first, due at `since` or later and before `until`."""
        query = {"topic": topic, "from": since, "to": until, "limit": limit, "cursor": cursor}
        return _page(await self._caller.call(get("scheduled", **query)))

    async def get(self, message_id: str) -> Json:
        """Return one message with its body. Its state remains available for a while after delivery or cancellation."""
        return await self._caller.call(get("scheduled", message_id))

    async def cancel(self, message_id: str) -> Json:
        """Cancel the message. The call may be repeated, and is refused after delivery."""
        return await self._caller.call(delete("scheduled", message_id, is_repeatable=True))

    async def retime(
        self, message_id: str, *, delay: Duration | None = None, deliver_at: Instant | None = None
    ) -> Json:
        """Change the delivery time. `delay` counts from now."""
        body = given(delay=delay, deliverAt=deliver_at)
        return await self._caller.call(put(body, "scheduled", message_id, method="PATCH"))


def _selection(ids: Sequence[str], is_all: bool, dry_run: bool) -> Json:
    if isinstance(ids, str):
        raise TypeError("ids must be a sequence of ids, not a string")
    return given(ids=[*ids] or None, all=is_all or None, dryRun=dry_run or None)


def _page(response: Json) -> Page[Json]:
    return {"items": response["items"], "next": response.get("next")}
