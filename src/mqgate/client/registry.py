"""The registry: topics, producers and groups by name, API keys by id."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mqgate.client.transport import Json, Transport, path

__all__ = ["Entries", "Groups", "Keys", "every"]


def every(page: Callable[..., Json]) -> Iterator[Json]:
    """Yield all items of a paged list: `every(client.topics.list)`."""
    cursor = None
    while True:
        response = page(cursor=cursor)
        yield from response["items"]
        cursor = response.get("next")
        if not cursor:
            return


class _Listed:
    def __init__(self, transport: Transport, kind: str) -> None:
        self._transport = transport
        self._kind = kind

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """Return one page: `items`, and `next` if there are more."""
        return self._transport.call("GET", path(self._kind), query={"limit": limit, "cursor": cursor})

    def delete(self, name: str) -> Json:
        return self._transport.call("DELETE", path(self._kind, name))


class Entries(_Listed):
    """Topics or producers. Settings have the names of the API."""

    def put(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Create the entry, or change the given settings. None removes a limit."""
        return self._transport.call("PUT", path(self._kind, name), settings)

    def get(self, name: str) -> Json:
        return self._transport.call("GET", path(self._kind, name))


class Groups(Entries):
    def patch(self, name: str, settings: Mapping[str, Any]) -> Json:
        """Change the given settings of an existing group."""
        return self._transport.call("PATCH", path(self._kind, name), settings)


class Keys(_Listed):
    def create(self, grant: Mapping[str, Any]) -> Json:
        """Create a key for `{"producer": p}`, `{"group": g}` or `{"role": "admin"}`. It is returned only once."""
        return self._transport.call("POST", path(self._kind), grant)
