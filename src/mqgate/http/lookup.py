"""Finds the group that a path names."""

from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group
from mqgate.http.exchange import Request

__all__ = ["requested_group"]


async def requested_group(request: Request, registry: Registry) -> Group:
    """Return the group in the path, and add its topic to the log lines of the request. Raise GroupNotFound."""
    name = request.path("group")
    group = registry.snapshot.groups.get(name) or await registry.group(name)
    request.log_fields["topic"] = group.topic
    return group
