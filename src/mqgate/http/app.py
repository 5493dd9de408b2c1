"""The ASGI application: Starlette's router over the table of operations, and a short cut to the busiest."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from starlette.routing import Route, Router

from mqgate.http import docs_page
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.middleware import Receive, RequestMiddleware, Resource, Scope, Send
from mqgate.http.openapi import document
from mqgate.http.operation import Operation

# What stands before the one name of an address, and behind it; what that name is called, and who answers.
_Shortcuts = Mapping[tuple[str, str], tuple[str, Resource]]


class App:
    """Addresses like /v1/topics/{topic}/messages are looked up; the router would try its patterns one by one."""

    def __init__(self, router: Router, shortcuts: _Shortcuts) -> None:
        self._router = router
        self.routes = router.routes
        self._shortcuts = shortcuts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            before, _, last = scope["path"].rpartition("/")
            first, _, name = before.rpartition("/")
            found = self._shortcuts.get((first, last))
            if found is not None and name:
                parameter, resource = found
                scope["path_params"] = {parameter: name}
                await resource(scope, receive, send)
                return
        await self._router(scope, receive, send)


def build(door: RequestMiddleware, operations: Sequence[Operation]) -> App:
    """Route every operation through the door; the order of the table is the order of matching, hot ones first."""

    # When somebody asks: to describe everything takes longer than all else that a gateway does before it serves.
    @cache
    def described() -> dict[str, Any]:
        return document(operations)

    @cache
    def page() -> bytes:
        return docs_page.render(described())

    async def openapi(_: Request) -> Response:
        return reply(200, described())

    async def docs(_: Request) -> Response:
        return Response(200, page(), b"text/html; charset=utf-8")

    about = [
        Operation(
            name="openapi",
            method="GET",
            path="/openapi.json",
            summary="This document",
            tag="health",
            handler=openapi,
        ),
        Operation(
            name="docs", method="GET", path="/docs", summary="For people", tag="health", handler=docs, is_page=True
        ),
    ]
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in (*operations, *about):
        for method in operation.method.split("|"):
            by_path.setdefault(operation.path, {})[method] = operation
    resources = {path: door.resource(methods) for path, methods in by_path.items()}
    routes = [Route(path, resource) for path, resource in resources.items()]
    return App(Router(routes, redirect_slashes=False, default=door.not_found), _shortcuts(resources))


def _shortcuts(resources: Mapping[str, Resource]) -> _Shortcuts:
    found: dict[tuple[str, str], tuple[str, Resource]] = {}
    earlier: list[str] = []
    for path, resource in resources.items():
        before, _, last = path.rpartition("/")
        first, _, name = before.rpartition("/")
        is_alone = path.count("{") == 1 and name[:1] == "{" and name[-1:] == "}" and ":" not in name
        if is_alone and not any(_may_meet(path, each) for each in earlier):
            found[first, last] = name[1:-1], resource
        earlier.append(path)
    return found


def _may_meet(path: str, other: str) -> bool:
    """Whether there may be an address that both patterns match: then their order decides."""
    if ":path}" in path + other:
        return True
    steps, others = path.split("/"), other.split("/")
    pairs = zip(steps, others, strict=False)
    return len(steps) == len(others) and all(a == b or "{" in a or "{" in b for a, b in pairs)
