"""One request and its response on a connection, as an ASGI application sees them.

`receive` returns the parts of the body as they arrive, and `http.disconnect` once the connection is closed or the
response is complete. `send` writes a response that has one part with a single write.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog

from mqgate.core.errors import MqgateError
from mqgate.http.exchange import Response, refuse
from mqgate.http.request_id import new_request_id
from mqgate.telemetry.log_context import clear_request

if TYPE_CHECKING:
    from mqgate.http.server.connection import Connection

__all__ = ["AsgiApp", "Event", "Exchange", "refusal"]

Event = MutableMapping[str, Any]
AsgiApp = Callable[[Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus}
# Reading stops while the application has not taken this much of a body.
_MAX_UNREAD_BODY = 64 << 10
# A smaller body is copied behind its head, so that both leave with one write.
_MAX_COPIED_BODY = 64 << 10
_WITHOUT_BODY = {204, 304}
_log = structlog.get_logger()


class Exchange:
    """A request, and the response that the application sends."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_event",
        "_is_chunked",
        "_is_continue_sent",
        "_is_end_delivered",
        "_start",
        "_unread",
        "is_body_complete",
        "is_complete",
        "is_disconnected",
        "is_half_closed",
        "is_keep_alive",
        "is_started",
        "scope",
        "status",
    )

    def __init__(self, connection: "Connection", scope: Event, *, is_keep_alive: bool) -> None:
        self._connection = connection
        self.scope = scope
        self.is_keep_alive = is_keep_alive
        self._chunks: list[bytes] = []
        self._unread = 0
        # Created on the first wait. Usually the request is complete before the application reads it.
        self._event: asyncio.Event | None = None
        self._start: Event | None = None
        self._is_chunked = False
        self._is_end_delivered = False
        self._is_continue_sent = False
        self.is_body_complete = False
        self.is_disconnected = False
        self.is_half_closed = False
        self.is_started = False
        self.is_complete = False
        self.status = 0

    async def run(self, app: AsgiApp) -> None:
        """Run the application. If it fails or leaves the response unfinished, close the connection."""
        self.scope["mqgate.direct"] = self
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:  # noqa: BLE001 - a fault of one request must not end the connection's others unlogged
            _log.exception("application failed", path=self.scope["path"][:100])
        finally:
            clear_request()
            # Without this reference to itself it is freed now, and not by the garbage collector.
            del self.scope["mqgate.direct"]
        if self.is_complete or self.is_disconnected:
            return
        if self.is_half_closed:
            self._connection.close()
        else:
            self._connection.abort("unfinished")

    def add_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._unread += len(chunk)
        if self._unread > _MAX_UNREAD_BODY:
            self._connection.pause_reading()
        if self._event is not None:
            self._event.set()

    def complete_body(self) -> None:
        self.is_body_complete = True
        if self._event is not None:
            self._event.set()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._notify()

    def half_close(self) -> None:
        """Note that the client has closed its side. It can still read the response, or it has disconnected."""
        self.is_half_closed = True
        self._notify()

    def declared_length(self) -> float:
        """Return the size of the body according to the head; infinity if it is sent in chunks."""
        return float(dict(self.scope["headers"]).get(b"content-length", b"inf"))

    def awaits_continue(self) -> bool:
        """Return whether the client sends its body only after the server has asked for it."""
        if self._is_continue_sent or self.scope["http_version"] == "1.0":
            return False
        return bytes(dict(self.scope["headers"]).get(b"expect", b"")).lower() == b"100-continue"

    def _notify(self) -> None:
        if self._event is not None:
            self._event.set()

    async def receive(self) -> Event:
        while True:
            if self.is_disconnected or self.is_complete:
                return {"type": "http.disconnect"}
            if self._chunks or (self.is_body_complete and not self._is_end_delivered):
                return self._take_body()
            if self.is_half_closed:
                return {"type": "http.disconnect"}
            if self.awaits_continue():
                self._is_continue_sent = True
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()

    def _take_body(self) -> Event:
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks = []
        self._is_end_delivered = self.is_body_complete
        if self._unread > _MAX_UNREAD_BODY:
            self._connection.resume_reading()
        self._unread = 0
        return {"type": "http.request", "body": body, "more_body": not self.is_body_complete}

    async def send(self, event: Event) -> None:
        if self._connection.is_write_paused and not self.is_disconnected:
            await self._connection.wait_writable()
        if self.is_disconnected:
            return
        if event["type"] == "http.response.start":
            self._start = event
            return
        body = event.get("body", b"")
        has_more = event.get("more_body", False)
        if self._start is not None:
            head = self._head(self._start)
            self._start = None
            self._write_first(head, self._framed(body, has_more=has_more))
        else:
            self._connection.write(self._framed(body, has_more=has_more))
        if not has_more:
            self.is_complete = True
            self._notify()
            self._connection.response_completed(self)

    def has_disconnected(self) -> bool:
        return self.is_disconnected or self.is_half_closed

    def respond(self, response: Response, request_id: str) -> bool:
        connection = self._connection
        if self.is_disconnected:
            return True
        if connection.is_write_paused:
            return False
        self.is_started = True
        self.status = response.status
        end = b"\r\n"
        if not connection.may_stay_open(self):
            self.is_keep_alive = False
            end = b"connection: close\r\n\r\n"
        head = b"%b%bcontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b" % (
            _STATUS_LINES[response.status],
            connection.date_line,
            response.content_type,
            len(response.body),
            request_id.encode(),
            b"".join([b"%b: %b\r\n" % header for header in response.headers]) if response.headers else b"",
            end,
        )
        self._write_first(head, b"" if self.scope["method"] == "HEAD" else response.body)
        self.is_complete = True
        self._notify()
        connection.response_completed(self)
        return True

    def _write_first(self, head: bytes, body: bytes) -> None:
        if len(body) <= _MAX_COPIED_BODY:
            self._connection.write(head + body)
        else:
            self._connection.write(head)
            self._connection.write(body)

    def _head(self, start: Event) -> bytes:
        self.is_started = True
        self.status = status = start["status"]
        parts = [_STATUS_LINES[status], self._connection.date_line]
        has_length = False
        for name, value in start["headers"]:
            parts += (name, b": ", value, b"\r\n")
            has_length = has_length or name == b"content-length"
        if not has_length and status not in _WITHOUT_BODY:
            # HTTP/1.0 knows no chunks: there the end of the connection is the end of the body.
            self._is_chunked = self.scope["http_version"] == "1.1"
            self.is_keep_alive = self.is_keep_alive and self._is_chunked
            parts.append(b"transfer-encoding: chunked\r\n" if self._is_chunked else b"")
        if not self._connection.may_stay_open(self):
            self.is_keep_alive = False
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def _framed(self, body: Any, *, has_more: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            return b""
        if not self._is_chunked:
            return body if isinstance(body, bytes) else bytes(body)
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk if has_more else chunk + b"0\r\n\r\n"


def refusal(error: MqgateError, date_line: bytes) -> bytes:
    """Return the response of the server itself to a request that the application does not get."""
    response = refuse(error)
    headers = (
        (b"content-type", response.content_type),
        (b"content-length", b"%d" % len(response.body)),
        (b"x-request-id", new_request_id().encode()),
        (b"connection", b"close"),
        *response.headers,
    )
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return _STATUS_LINES[response.status] + date_line + lines + b"\r\n" + response.body
