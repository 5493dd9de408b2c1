"""Storage of what each gateway observed, so that one gateway can evaluate the rules for all."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from mqgate.core.alarms import GatewayReport

__all__ = ["GatewayReports"]


class GatewayReports(Protocol):
    """A store with the last report of each gateway."""

    async def add(self, report: GatewayReport) -> None:
        """Store a report in place of the previous one of the same gateway."""

    async def recent(self, max_age: timedelta) -> Sequence[GatewayReport]:
        """Return the reports that are at most this old by the clock of the store, and delete those of past days."""
