"""The open connections of a server: limits in total and per address, and the deadlines of all of them.

When a limit is reached, a connection makes room for a new one: first one that never completed a request, then the one
that was idle for longest, then the one whose client has not read its response for longest. Nobody can therefore keep
others out with connections that do nothing. Each choice takes constant time, however many connections are in use.
"""

from collections.abc import Iterator

from mqgate.http.server.connection import Connection
from mqgate.http.server.forwarded import Networks
from mqgate.http.server.owner import Eviction
from mqgate.settings import HttpSettings

__all__ = ["Connections"]

# Seconds after which a client that does not read its response can lose its connection to another client.
_MIN_STALL = 5.0
# Memory below which disconnecting a client would free nothing worth it.
_MIN_HELD = 16 << 10
_CHECKED_AT_ONCE = 100


class _Pool:
    """The connections of one address, or all of them."""

    __slots__ = ("count", "evictable")

    def __init__(self) -> None:
        self.count = 0
        # The one that became evictable first is the first of its kind.
        self.evictable: dict[Eviction, dict[Connection, None]] = {eviction: {} for eviction in Eviction}

    def first_evictable(self, now: float) -> Connection | None:
        for connections in self.evictable.values():
            for connection in connections:
                if not connection.is_write_paused or connection.stalled_at + _MIN_STALL < now:
                    return connection
                break
        return None


class Connections:
    def __init__(self, settings: HttpSettings, trusted_proxies: Networks) -> None:
        self._settings = settings
        self._trusted_proxies = trusted_proxies
        self._all: set[Connection] = set()
        self._total = _Pool()
        self._by_address: dict[str, _Pool] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._all))

    def admit(self, connection: Connection, now: float) -> bool:
        """Add a connection. Return False if a limit is reached and no connection can make room."""
        settings = self._settings
        address = connection.address
        if self._total.count >= settings.max_connections and not self._evict(self._total, now):
            return False
        pool = self._by_address.get(address) or _Pool()
        is_full = pool.count >= settings.max_connections_per_address and address not in self._trusted_proxies
        if is_full and not self._evict(pool, now):
            return False
        # A pool is forgotten with its last connection, which may have been the evicted one.
        self._by_address[address] = pool
        self._all.add(connection)
        self._total.count += 1
        pool.count += 1
        self.set_eviction(connection, Eviction.NEW)
        return True

    def discard(self, connection: Connection) -> None:
        if connection not in self._all:
            return
        self.set_eviction(connection, None)
        self._all.discard(connection)
        self._total.count -= 1
        pool = self._by_address[connection.address]
        pool.count -= 1
        if not pool.count:
            del self._by_address[connection.address]

    def set_eviction(self, connection: Connection, eviction: Eviction | None) -> None:
        """Note whether, and in which order, a connection can make room for others."""
        if connection not in self._all:
            return
        for pool in (self._total, self._by_address[connection.address]):
            if connection.eviction is not None:
                del pool.evictable[connection.eviction][connection]
            if eviction is not None:
                pool.evictable[eviction][connection] = None
        connection.eviction = eviction

    def _evict(self, pool: _Pool, now: float) -> bool:
        connection = pool.first_evictable(now)
        if connection is None:
            return False
        # An aborted transport reports its end in the next turn of the loop. The place is free now.
        self.discard(connection)
        connection.abort("evicted")
        return True

    def check_deadlines(self, now: float) -> Iterator[None]:
        """Close connections whose clients are too slow, and the slowest ones if all of them hold too much memory.

        Yields regularly, so that the caller can let other tasks run: closing 10,000 connections takes half a second.
        """
        held = 0
        holders = []
        for index, connection in enumerate(self):
            if index % _CHECKED_AT_ONCE == _CHECKED_AT_ONCE - 1:
                yield
            if (connection.deadline < now or connection.is_write_paused) and connection in self._all:
                connection.check_deadline(now)
            if size := connection.held_bytes:
                held += size
                if size >= _MIN_HELD:
                    holders.append(connection)
        if held <= self._settings.max_unread_bytes:
            return
        holders.sort(key=lambda holder: holder.waiting_since)
        for connection in holders:
            if connection not in self._all:
                continue
            held -= connection.held_bytes
            connection.abort("memory_limit")
            if held <= self._settings.max_unread_bytes:
                break
