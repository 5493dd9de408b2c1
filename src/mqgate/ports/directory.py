"""What the data plane may know of the control plane: the last known registry, without waiting."""

from typing import Protocol

from mqgate.core.entries import Snapshot


class Directory(Protocol):
    @property
    def snapshot(self) -> Snapshot:
        """The registry as last seen; messages keep flowing on it while control is down."""
