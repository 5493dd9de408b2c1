"""The processing of every request: limits, authentication, body, handler, response.

A caller without permission is refused before its body is read. Bytes of bodies are counted as they arrive, so that a
body that is only announced does not use up the limit. Errors become problem documents only here. An unexpected
exception becomes a 500 with the request id and is logged.

A streamed response has sent its status 200 before it is complete. If it fails later, it is left unfinished and the
server closes the connection, so that a client cannot mistake the part for the whole. Metrics and logs then show the
status of the failure.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote_plus

import structlog

from mqgate.consumption.connection import ClientDisconnected
from mqgate.control.access.model import Principal
from mqgate.control.access.permissions import Grant
from mqgate.control.access.service import Access
from mqgate.core.addresses import is_loopback
from mqgate.core.errors import (
    Forbidden,
    InvalidValue,
    MethodNotAllowed,
    MqgateError,
    Overloaded,
    RouteNotFound,
    TooLarge,
    UnknownField,
)
from mqgate.http.exchange import Request, Response, Stream, refuse, reply
from mqgate.http.operation import Operation
from mqgate.http.origin_guard import OriginGuard
from mqgate.http.request_id import request_id_of
from mqgate.http.session_cookie import check_same_origin, session_token
from mqgate.settings import HttpSettings
from mqgate.telemetry.log_context import bind_request
from mqgate.telemetry.metrics import Metrics

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_MAX_DIGITS = 18
_log = structlog.get_logger()


class _Stalled(Exception):
    """The client does not read the response."""


class RequestMiddleware:
    """Limits, authentication and errors of every request."""

    def __init__(
        self,
        access: Access,
        metrics: Metrics,
        settings: HttpSettings,
        log_requests: str,
        *,
        parked: Callable[[], int] = lambda: 0,
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._settings = settings
        self._parked = parked
        own_host = (settings.host,) if is_loopback(settings.host) else ()
        self._guard = OriginGuard((*settings.allowed_hosts, *own_host), settings.cors_origins)
        self._log_all = log_requests == "all"
        self._requests = 0
        self._bytes = 0
        metrics.in_flight.set_function(lambda: self._requests)

    def resource(self, operations: Mapping[str, Operation]) -> "Resource":
        return Resource(self, operations)

    async def not_found(self, scope: AsgiScope, _receive: AsgiReceive, send: AsgiSend) -> None:
        """Respond to a path that no route has."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        await self.reject(RouteNotFound("See /docs for the routes."), scope, send)

    async def reject(self, error: MqgateError, scope: AsgiScope, send: AsgiSend) -> None:
        """Respond with an error of routing. An unauthenticated caller gets 401 instead, for any path or method."""
        headers = dict(scope["headers"])
        request = Request(scope, headers, request_id_of(headers), _no_body)
        try:
            await self._identify(request)
            response = refuse(error)
        except MqgateError as denied:
            response = refuse(denied)
        await _send(send, response, request.request_id)

    async def preflight(self, methods: str, scope: AsgiScope, send: AsgiSend) -> bool:
        """Respond to a CORS preflight request of a listed origin. Return False for any other request."""
        headers = dict(scope["headers"])
        allowed = self._guard.preflight_headers(headers, methods)
        if allowed:
            await _send(send, Response(204, headers=allowed), request_id_of(headers))
        return bool(allowed)

    async def _identify(self, request: Request) -> None:
        """Authenticate the caller. Without keys, raise if a web page of another origin sent the request."""
        if not self._access.is_for_all:
            request.principal = await self._authenticate(request)
            return
        self._check_anonymous(request)

    async def _authenticate(self, request: Request) -> Principal:
        """Return the caller: by the Authorization header, or by the session cookie of a browser."""
        headers = request.headers
        if b"authorization" not in headers and b"cookie" in headers:
            scheme = request.scope["scheme"]
            token = session_token(headers, scheme)
            if token is not None:
                check_same_origin(request.scope["method"], headers, scheme, is_header_required=True)
                return await self._access.authenticate_session(token)
        return await self._access.authenticate(request.header(b"authorization"))

    def _check_anonymous(self, request: Request, *, is_page: bool = False) -> None:
        self._guard.check(request.scope["method"], request.headers, is_page=is_page)

    async def _admit(self, operation: Operation, request: Request) -> None:
        if operation.is_public:
            # Load balancers probe with host names of their own. Without keys, only loopback clients can connect.
            if self._access.is_for_all:
                self._check_anonymous(request, is_page=operation.is_page)
        elif operation.is_anonymous:
            self._check_anonymous(request)
        elif self._access.is_for_all:
            # Clients behind a proxy on this machine are not loopback clients.
            if not is_loopback(request.address):
                raise Forbidden("Without a key only clients on loopback are served. Create an admin key.")
            self._check_anonymous(request, is_page=operation.is_page)
        else:
            request.principal = await self._authenticate(request)
        if operation.permit is not None:
            operation.permit(request)
        if operation.grants:
            parameters = request.scope["path_params"]
            request.grant = self._access.permit(request.principal, operation.grants, parameters)
            if request.grant is Grant.OWN and request.principal.account is not None:
                await self._access.check_own(request.principal, parameters)

    async def serve(self, operation: Operation, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        began = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = request_id_of(headers)
        request = Request(scope, headers, request_id, receive)
        bind_request(request.log_fields)
        self._requests += 1
        try:
            if not operation.is_health:
                self._check_load()
            await self._admit(operation, request)
            if b"content-length" in headers or b"transfer-encoding" in headers:
                await self._read_body(operation, request, receive)
            self._check_query(operation, scope)
            response = await operation.handler(request)
        except MqgateError as error:
            response = operation.refuse(error)
        except ClientDisconnected:
            return
        except Exception:  # noqa: BLE001 - becomes a 500 and is logged
            _log.exception("request failed", operation=operation.name)
            response = _internal_error(request_id)
        finally:
            self._requests -= 1
            self._bytes -= request.body_bytes
        if b"origin" in headers:
            response = response._replace(headers=[*response.headers, *self._guard.cors_headers(headers)])
        status = response.status
        if response.stream is not None:
            status = await self._stream(operation, request, response, response.stream, send)
        elif not request.respond(response):
            await _send(send, response, request_id)
        seconds = time.perf_counter() - began
        self._metrics.count_response(operation.name, status, seconds)
        if self._log_all or status >= 500:  # noqa: PLR2004 - server errors
            self._log_request(operation, status, seconds, request)

    async def _stream(
        self, operation: Operation, request: Request, response: Response, stream: Stream, send: AsgiSend
    ) -> int:
        """Send a response in pieces. Return its status, or the status of the failure that ended it."""
        self._requests += 1
        try:
            await send(_start(response, request.request_id))
            if request.scope["method"] != "HEAD":
                await self._send_pieces(request, stream, send)
            await self._send_piece(send, b"", is_last=True)
        except ClientDisconnected:
            return response.status
        except _Stalled:
            return self._abort_stream(operation, 408, "stalled")
        except MqgateError as error:
            return self._abort_stream(operation, operation.refuse(error).status, error.code)
        except Exception:  # noqa: BLE001 - logged, and the connection is closed
            _log.exception("request failed", operation=operation.name)
            return self._abort_stream(operation, 500, "internal_error")
        finally:
            self._requests -= 1
            await stream.aclose()
        return response.status

    async def _send_pieces(self, request: Request, stream: Stream, send: AsgiSend) -> None:
        async for piece in stream:
            await self._send_piece(send, piece)
            # Sending does not fail when the client has disconnected.
            if request.is_disconnected():
                raise ClientDisconnected
            # Sending into free buffers does not yield to the event loop.
            await asyncio.sleep(0)

    async def _send_piece(self, send: AsgiSend, piece: bytes | memoryview, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._settings.stall_timeout.total_seconds()):
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        except TimeoutError:
            raise _Stalled from None

    def _abort_stream(self, operation: Operation, status: int, reason: str) -> int:
        _log.warning("response aborted", operation=operation.name, reason=reason)
        return status

    def _check_load(self) -> None:
        limit = self._settings.max_requests
        # Parked receives have a separate limit.
        if self._requests > limit and self._requests - self._parked() > limit:
            raise Overloaded(f"The limit of {limit} concurrent requests is reached. Try again later.", retry_after=1)

    @staticmethod
    def _check_query(operation: Operation, scope: AsgiScope) -> None:
        if operation.query is None and scope["query_string"] and not operation.ignores_query:
            name = unquote_plus(re.split(b"[=&]", scope["query_string"], maxsplit=1)[0].decode("latin-1"))[:100]
            raise UnknownField(f"This operation takes no query parameters. Remove {name}.", field=name)

    async def _read_body(self, operation: Operation, request: Request, receive: AsgiReceive) -> None:
        """Read the body of a permitted request, within the limits of the operation and of the gateway."""
        limit = operation.max_body_bytes
        length = request.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or len(length) > _MAX_DIGITS):
            raise InvalidValue("Content-Length must be a number.", field="content-length")
        if length is not None and int(length) > limit:
            raise _too_large(limit)
        chunks = []
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk = event.get("body", b"")
            request.body_bytes += len(chunk)
            self._bytes += len(chunk)
            if request.body_bytes > limit:
                raise _too_large(limit)
            if self._bytes > self._settings.max_bytes_in_flight:
                raise Overloaded("The limit of request bytes in memory is reached. Try again later.", retry_after=1)
            chunks.append(chunk)
            if not event.get("more_body"):
                request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                return

    def _log_request(self, operation: Operation, status: int, seconds: float, request: Request) -> None:
        _log.info(
            "request served",
            operation=operation.name,
            status=status,
            path=request.scope["path"],
            ms=round(seconds * 1000, 3),
        )


class Resource:
    """An ASGI endpoint: one path with its methods."""

    def __init__(self, middleware: RequestMiddleware, operations: Mapping[str, Operation]) -> None:
        self._middleware = middleware
        self._operations = operations
        self._method_error = MethodNotAllowed(
            f"Use {' or '.join(sorted(operations))}.", allow=", ".join(sorted(operations))
        )

    def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> Awaitable[None]:
        method = scope["method"]
        # The server omits the body of a HEAD response.
        operation = self._operations.get(method) or (self._operations.get("GET") if method == "HEAD" else None)
        if method == "OPTIONS":
            return self._options(operation, scope, receive, send)
        if operation is None:
            return self._middleware.reject(self._method_error, scope, send)
        return self._middleware.serve(operation, scope, receive, send)

    async def _options(
        self, operation: Operation | None, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend
    ) -> None:
        if await self._middleware.preflight(str(self._method_error.members["allow"]), scope, send):
            return
        if operation is None:
            await self._middleware.reject(self._method_error, scope, send)
        else:
            await self._middleware.serve(operation, scope, receive, send)


def _too_large(limit: int) -> TooLarge:
    detail = f"The body may have at most {limit} bytes." if limit else "This operation takes no body."
    return TooLarge(detail, limit=limit)


def _internal_error(request_id: str) -> Response:
    content = {
        "status": 500,
        "code": "internal_error",
        "title": "Internal error",
        "detail": f"Search the gateway's log for {request_id}.",
        "retryable": False,
    }
    return reply(500, content)._replace(content_type=b"application/problem+json")


async def _no_body() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


def _start(response: Response, request_id: str, *length: tuple[bytes, bytes]) -> MutableMapping[str, Any]:
    return {
        "type": "http.response.start",
        "status": response.status,
        "headers": [
            (b"content-type", response.content_type),
            *length,
            (b"x-request-id", request_id.encode()),
            *response.headers,
        ],
    }


async def _send(send: AsgiSend, response: Response, request_id: str) -> None:
    await send(_start(response, request_id, (b"content-length", b"%d" % len(response.body))))
    await send({"type": "http.response.body", "body": response.body})
