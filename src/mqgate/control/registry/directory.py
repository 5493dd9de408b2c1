"""The registry as the data plane sees it: the last version loaded."""

import asyncio
from collections.abc import Callable, Mapping

from mqgate.core.entries import EMPTY, Snapshot
from mqgate.ports.registry_store import RegistryStore

__all__ = ["CachedDirectory", "differing"]


class CachedDirectory:
    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        # Read by every request, replaced here only.
        self.snapshot: Snapshot = EMPTY
        self._replaced: list[Callable[[Snapshot, Snapshot], None]] = []
        # Of two that catch up at once, the one with the older answer may not come last.
        self._turn = asyncio.Lock()

    def follow(self, replaced: Callable[[Snapshot, Snapshot], None]) -> None:
        """Call `replaced` with what was known and what is, whenever that is not the same; whoever changed it."""
        self._replaced.append(replaced)

    async def refresh(self) -> Snapshot:
        """Catch up with the store; cheap when nothing changed."""
        async with self._turn:
            if await self._store.version() != self.snapshot.version:
                before, self.snapshot = self.snapshot, await self._store.load()
                for replaced in self._replaced:
                    replaced(before, self.snapshot)
            return self.snapshot


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The names of entries that are new, gone or changed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
