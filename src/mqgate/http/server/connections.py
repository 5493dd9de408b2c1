"""The open connections of a server: limits in total and per address, and the deadlines of all of them.

When a limit is reached, unused connections make room for new ones: first those that never completed a request, then
those that were idle for longest. Nobody can therefore keep others out with connections that do nothing.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator

from mqgate.http.server.connection import Connection
from mqgate.http.server.forwarded import Networks
from mqgate.settings import HttpSettings

__all__ = ["Connections"]

# Connections that make room at once. One at a time, a flood of new connections would scan all of them for each.
_EVICTED_SHARE = 20


class Connections:
    def __init__(self, settings: HttpSettings, trusted_proxies: Networks) -> None:
        self._settings = settings
        self._trusted_proxies = trusted_proxies
        self._all: set[Connection] = set()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._all))

    def admit(self, connection: Connection) -> bool:
        """Add a connection. Return False if a limit is reached and no connection is unused."""
        settings = self._settings
        address = connection.address
        if len(self._all) >= settings.max_connections and not self._evict(self._all):
            return False
        if self._by_address[address] >= settings.max_connections_per_address and address not in self._trusted_proxies:
            neighbours = (each for each in self._all if each.address == address)
            if not self._evict(neighbours):
                return False
        self._all.add(connection)
        self._by_address[address] += 1
        return True

    def discard(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.discard(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def _evict(self, connections: Iterable[Connection]) -> bool:
        """Abort some unused connections. Return whether there was one."""
        unused = [each for each in connections if each.is_unused()]
        count = 1 + len(unused) // _EVICTED_SHARE
        evicted = heapq.nsmallest(count, unused, key=lambda each: (each.served > 0, each.last_used))
        for connection in evicted:
            # Aborted transports report their end in the next turn of the loop. The place is free now.
            self.discard(connection)
            connection.abort("evicted")
        return bool(evicted)

    def check_deadlines(self, now: float) -> None:
        """Close connections whose clients are too slow, and the most stalled ones if unread responses take too much."""
        unread = 0
        stalled = []
        for connection in self:
            connection.check_deadline(now)
            if size := connection.unread_bytes:
                unread += size
                stalled.append(connection)
        stalled.sort(key=lambda each: each.stalled_at)
        for connection in stalled:
            if unread <= self._settings.max_unread_bytes:
                break
            unread -= connection.unread_bytes
            connection.abort("unread_response")
