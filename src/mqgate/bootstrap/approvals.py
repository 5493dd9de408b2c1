"""Assembles applications and their execution."""

from typing import Any

from mqgate.bootstrap.consumption import Consumption
from mqgate.bootstrap.opened import Opened
from mqgate.control.access.service import Credentials
from mqgate.control.approvals.applier import ApplicationApplier
from mqgate.control.approvals.requests import Requests
from mqgate.control.approvals.service import Approvals
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Mode
from mqgate.core.errors import UnsupportedByMode

__all__ = ["build_approvals"]


def build_approvals(
    opened: Opened, registry: Registry, consumption: Consumption, credentials: Credentials
) -> tuple[Approvals, ApplicationApplier]:
    """Return the service of applications, and the background service that applies approved ones."""

    async def seek(name: str, to: Any, *, is_dry_run: bool, actor: str) -> dict[str, int]:
        group = await registry.group(name)
        if group.mode is Mode.BROADCAST:
            raise UnsupportedByMode("A seek of a broadcast group concerns one client. An operator seeks it directly.")
        moved = await consumption.positions.seek(group, "", to, is_dry_run=is_dry_run)
        if not is_dry_run:
            consumption.long_poll.changed(name)
            details = {"client": "", "queues": [[row.queue, row.old, row.new] for row in moved]}
            await registry.record(actor, "seek", f"group {name}", None, details)
        return {row.queue: row.new for row in moved}

    store, clock = opened.control.applications, opened.control.clock
    applier = ApplicationApplier(store, Requests(registry, seek), clock)
    return Approvals(store, registry, credentials.keys, opened.settings.approvals, clock, applier.wake), applier
