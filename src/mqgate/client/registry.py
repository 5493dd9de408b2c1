"""What is registered: topics, producers and groups by name, keys by id."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mqgate.client.transport import Json, Transport, path

__all__ = ["Entries", "Groups", "Keys", "every"]


def every(page: Callable[..., Json]) -> Iterator[Json]:
    """All items of a list, page after page: `every(client.topics.list)`."""
    cursor = None
    while True:
        answer = page(cursor=cursor)
        yield from answer["items"]
        cursor = answer.get("next")
        if not cursor:
            return


class _Listed:
    def __init__(self, transport: Transport, kind: str) -> None:
        self._transport = transport
        self._kind = kind

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """One page: `items`, and `next` while there are more."""
        return self._transport.call("GET", path(self._kind), query={"limit": limit, "cursor": cursor})

    def delete(self, name: str) -> Json:
        return self._transport.call("DELETE", path(self._kind, name))


class Entries(_Listed):
    """Topics or producers; settings are named as in the API."""

    def put(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create the entry, or change the given settings of it; null lifts a limit."""
        return self._transport.call("PUT", path(self._kind, name), settings)

    def get(self, name: str) -> Json:
        return self._transport.call("GET", path(self._kind, name))


class Groups(Entries):
    def patch(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Change the given settings of a group that is there."""
        return self._transport.call("PATCH", path(self._kind, name), settings)


class Keys(_Listed):
    def create(self, grant: Mapping[str, Any]) -> Json:
        """Make a key for `{"producer": p}`, `{"group": g}` or `{"role": "admin"}`; it is shown only now."""
        return self._transport.call("POST", path(self._kind), grant)
