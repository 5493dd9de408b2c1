"""Routing: paths are served as the route table says, by direct lookup or by the router."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from mqgate.control.access.service import Access
from mqgate.control.registry.directory import CachedDirectory
from mqgate.http.app import App, build
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.middleware import RequestMiddleware
from mqgate.http.operation import Operation
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics


def app_of(*paths: str) -> App:
    """Return an application whose operations respond with their path and path parameters."""

    def operation(path: str) -> Operation:
        async def respond(request: Request) -> Response:
            return reply(200, [path, request.scope["path_params"]])

        return Operation(
            name=path, method="GET", path=path, summary="", handler=respond, tag="", is_public=True, ignores_query=True
        )

    directory = CachedDirectory(None)  # type: ignore[arg-type]  # not used
    access = Access(directory, None, None, may_be_open=True, catch_up=None)  # type: ignore[arg-type]  # not used
    return build(RequestMiddleware(access, Metrics(), HttpSettings(), "errors"), [operation(path) for path in paths])


async def ask(app: App, path: str, **more: object) -> tuple[int, bytes]:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], **more}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    ("path", "response"),
    [
        ("/v1/topics/orders/messages", b'["/v1/topics/{topic}/messages",{"topic":"orders"}]'),
        ("/v1/topics/a b\n/messages", b'["/v1/topics/{topic}/messages",{"topic":"a b\\n"}]'),
        ("/v1/topics/all/messages", b'["/v1/topics/{topic}/messages",{"topic":"all"}]'),
        ("/v1/groups/all/lag", b'["/v1/groups/all/lag",{}]'),
        ("/v1/groups/workers/lag", b'["/v1/groups/{group}/lag",{"group":"workers"}]'),
        ("/v1/topics/orders", b'["/v1/topics/{topic}",{"topic":"orders"}]'),
    ],
)
async def test_the_first_operation_that_matches_is_served(path: str, response: bytes) -> None:
    """The direct lookup must keep the order of the table."""
    app = app_of(
        "/v1/topics/{topic}/messages",
        "/v1/topics/all/messages",
        "/v1/groups/all/lag",
        "/v1/groups/{group}/lag",
        "/v1/topics/{topic}",
    )

    assert await ask(app, path) == (200, response)


@pytest.mark.parametrize(
    "path", ["/v1/topics//messages", "/v1/topics/a/b/messages", "v1/topics/a/messages", "messages"]
)
async def test_a_path_without_an_operation_is_404(path: str) -> None:
    """A name is exactly one path segment, and not empty."""
    assert (await ask(app_of("/v1/topics/{topic}/messages"), path))[0] == 404


async def test_an_application_mounted_below_a_path_is_served() -> None:
    """The ASGI server passes the root path."""
    app = app_of("/v1/topics/{topic}/messages")

    status, response = await ask(app, "/below/v1/topics/orders/messages", root_path="/below")

    assert (status, response) == (200, b'["/v1/topics/{topic}/messages",{"topic":"orders"}]')
