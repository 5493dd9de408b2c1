"""The cached registry that the data plane reads."""

import asyncio
from collections.abc import Callable, Mapping

from mqgate.core.entries import EMPTY, Snapshot
from mqgate.ports.registry_store import RegistryStore

__all__ = ["CachedDirectory", "differing"]


class CachedDirectory:
    """The last loaded version of the registry."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        # Every request reads it; only `refresh` replaces it.
        self.snapshot: Snapshot = EMPTY
        self._listeners: list[Callable[[Snapshot, Snapshot], None]] = []
        # Without it, the older result of two concurrent loads could be stored last.
        self._lock = asyncio.Lock()

    def follow(self, listener: Callable[[Snapshot, Snapshot], None]) -> None:
        """Call `listener` with the previous and the new snapshot after every change, by any gateway."""
        self._listeners.append(listener)

    async def refresh(self) -> Snapshot:
        """Reload the registry if its version changed, and return the current snapshot."""
        async with self._lock:
            if await self._store.version() != self.snapshot.version:
                before, self.snapshot = self.snapshot, await self._store.load()
                for listener in self._listeners:
                    listener(before, self.snapshot)
            return self.snapshot


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the names of entries that were added, removed or changed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
