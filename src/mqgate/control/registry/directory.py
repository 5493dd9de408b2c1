"""The registry as the data plane sees it: the last version loaded."""

from mqgate.core.entries import EMPTY, Snapshot
from mqgate.ports.registry_store import RegistryStore


class CachedDirectory:
    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        self._snapshot = EMPTY

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    async def refresh(self) -> Snapshot:
        """Catch up with the store; cheap when nothing changed."""
        if await self._store.version() != self._snapshot.version:
            self._snapshot = await self._store.load()
        return self._snapshot
