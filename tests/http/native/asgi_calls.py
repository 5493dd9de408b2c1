"""One request over plain ASGI, for tests that read a response in pieces or not at all."""

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

ARROW = "application/vnd.apache.arrow.stream"


class Call:
    """A request and its response. A test can run code before the client reads the n-th piece of the body."""

    def __init__(self, app: Any, url: str, *, method: str = "GET", accept: str = ARROW) -> None:
        self._app = app
        address = urlsplit(url)
        self._scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": address.path,
            "raw_path": address.path.encode(),
            "query_string": address.query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(b"accept", accept.encode())],
            "client": ("127.0.0.1", 5000),
            "server": ("mqgate", 80),
        }
        self.sent: list[dict[str, Any]] = []
        self.lost: list[dict[str, Any]] = []
        self._is_gone = asyncio.Event()
        self.before_piece: Callable[[int], Any] = lambda _: None

    @property
    def pieces(self) -> list[bytes]:
        return [bytes(event["body"]) for event in self.sent if event["type"] == "http.response.body"]

    @property
    def is_whole(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", self.sent[-1]["type"] == "http.response.start")

    def hang_up(self) -> None:
        self._is_gone.set()

    async def run(self) -> "Call":
        await self._app(self._scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        if event["type"] == "http.response.body":
            waiting = self.before_piece(len(self.pieces))
            if waiting is not None:
                await waiting
        # As a server that has lost its client: it takes what comes, and throws it away.
        (self.lost if self._is_gone.is_set() else self.sent).append(event)
