"""What the surface offers, as data: the router, the OpenAPI document and the docs page are all read from it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqgate.core.errors import MqgateError
from mqgate.http.exchange import Request, Response, refuse

Handler = Callable[[Request], Awaitable[Response]]
# Largest body of a call that takes a few settings, or nothing.
SMALL_BODY = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one resource."""

    name: str
    method: str
    path: str
    summary: str
    handler: Handler
    tag: str
    takes: Any = None
    takes_nothing_too: bool = False
    takes_bytes: bool = False
    query: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[int, Any] = field(default_factory=dict)
    # The type in which a 200 is streamed to those who ask for it.
    streams: str | None = None
    refusals: tuple[int, ...] = ()
    # Served to everybody, without a key.
    is_public: bool = False
    # Served without a key to those that `permit` lets in.
    is_anonymous: bool = False
    # For people: a browser may navigate there from another site.
    is_page: bool = False
    # Served under any load, so that a balancer does not take a busy gateway for a dead one.
    is_health: bool = False
    # Raises if the caller may not call. Called before the body is read.
    permit: Callable[[Request], None] | None = None
    max_body_bytes: int = SMALL_BODY
    ignores_query: bool = False
    refuse: Callable[[MqgateError], Response] = refuse
    content_type: str = "application/json"
