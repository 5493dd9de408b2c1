"""The registry as the data plane reads it: the last loaded snapshot, without I/O."""

from typing import Protocol

from mqgate.core.entries import Snapshot


class Directory(Protocol):
    """A source of the registry snapshot of this gateway."""

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot that was loaded last. It stays available while the control plane is down."""
