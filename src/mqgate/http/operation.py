"""One entry of the route table. The router, the OpenAPI document and the docs page are built from these entries."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from mqgate.control.access.permissions import PERMISSIONS, Grant
from mqgate.core.errors import MqgateError
from mqgate.http.exchange import Request, Response, refuse

__all__ = ["SMALL_BODY", "Handler", "Operation", "describe", "route"]

Handler = Callable[[Request], Awaitable[Response]]
_F = TypeVar("_F", bound=Callable[..., Awaitable[Response]])
_DESCRIPTION = "__operation__"
# Maximum body of an operation that takes a few settings or no body.
SMALL_BODY = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path, with its handler and its description. `method` may list several, separated by `|`."""

    name: str
    method: str
    path: str
    summary: str
    handler: Handler
    tag: str
    request_type: Any = None
    is_body_optional: bool = False
    accepts_bytes: bool = False
    query: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Response types by status; a tuple lists alternatives.
    responses: Mapping[int, Any] = field(default_factory=dict)
    # The media type of a 200 that is streamed if the client accepts it.
    stream_type: str | None = None
    errors: tuple[int, ...] = ()
    # No key is required.
    is_public: bool = False
    # No key is required from clients that `permit` accepts.
    is_anonymous: bool = False
    # A browser may navigate here from another site.
    is_page: bool = False
    # Served under any load, so that a load balancer does not remove a busy gateway.
    is_health: bool = False
    # The row of the permission table: the grant of each kind of caller. Checked before the body is read.
    grants: Mapping[str, Grant] = field(default_factory=dict)
    # Anonymous operations: raises if the network of the client is not admitted.
    permit: Callable[[Request], None] | None = None
    max_body_bytes: int = SMALL_BODY
    ignores_query: bool = False
    refuse: Callable[[MqgateError], Response] = refuse
    content_type: str = "application/json"


def describe(name: str, tag: str, **members: Any) -> Callable[[_F], _F]:
    """Attach the description of an operation to its handler. The summary is the first line of the docstring."""

    def attach(handler: _F) -> _F:
        summary = (handler.__doc__ or "").partition("\n")[0].rstrip(".")
        setattr(handler, _DESCRIPTION, partial(Operation, name=name, tag=tag, summary=summary, **members))
        return handler

    return attach


def route(method: str, path: str, handler: Handler, **members: Any) -> Operation:
    """Return the operation that a described handler serves at a path. Raise KeyError if it has no permissions."""
    operation: Operation = getattr(handler, _DESCRIPTION)(method=method, path=path, handler=handler, **members)
    return operation if operation.is_public else replace(operation, grants=PERMISSIONS[operation.name])
