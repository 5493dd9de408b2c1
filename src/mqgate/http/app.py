"""The ASGI application: Starlette's router over the table of operations."""

from collections.abc import Sequence

from starlette.routing import Route, Router

from mqgate.http import docs_page
from mqgate.http.door import Door
from mqgate.http.exchange import Answer, Request, reply
from mqgate.http.openapi import document
from mqgate.http.operation import Operation


def build(door: Door, operations: Sequence[Operation]) -> Router:
    """Route every operation through the door; the order of the table is the order of matching, hot ones first."""
    described = document(operations)
    page = docs_page.render(described)

    async def openapi(_: Request) -> Answer:
        return reply(200, described)

    async def docs(_: Request) -> Answer:
        return Answer(200, page, b"text/html; charset=utf-8")

    about = [
        Operation(
            name="openapi",
            method="GET",
            path="/openapi.json",
            summary="This document",
            tag="health",
            handler=openapi,
        ),
        Operation(name="docs", method="GET", path="/docs", summary="For people", tag="health", handler=docs),
    ]
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in (*operations, *about):
        for method in operation.method.split("|"):
            by_path.setdefault(operation.path, {})[method] = operation
    routes = [Route(path, door.resource(methods)) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False, default=door.not_found)
