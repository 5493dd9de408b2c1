"""GET /openapi.json and /docs."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from mqgate.http import docs_page
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.openapi import document
from mqgate.http.operation import Operation, describe

__all__ = ["DocumentationApi"]


class DocumentationApi:
    """The description of the API. It is built on the first request, because building it slows down the start."""

    def __init__(self, operations: Callable[[], Sequence[Operation]]) -> None:
        self._operations = operations

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(self._operations())

    @cached_property
    def _page(self) -> bytes:
        return docs_page.render(self._document)

    @describe("openapi", "health")
    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return reply(200, self._document)

    @describe("docs", "health", is_page=True)
    async def docs(self, _: Request) -> Response:
        """Return the API documentation as a page."""
        return Response(200, self._page, b"text/html; charset=utf-8")
