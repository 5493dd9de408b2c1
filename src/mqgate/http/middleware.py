"""The door: what every request passes, on every surface, in one place.

limits -> caller -> body -> handler -> answer. A caller that may not call is refused before its body is read. The bytes
of bodies are counted as they arrive, so that a body which is only announced takes nothing away from others. An error
becomes a problem document here and nowhere else; a bug becomes a 500 with the request's id, and is logged with it.

A streamed answer has said 200 before it is whole. Whatever goes wrong then leaves it unfinished, upon which the server
closes the connection, so that nobody takes the part for the whole. It counts with the status of what went wrong.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote_plus

import structlog

from mqgate.consumption.long_poll import ClientDisconnected
from mqgate.control.access.service import Access
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
from mqgate.http.server.forwarded import is_loopback
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_LONGEST_NUMBER = 18
_log = structlog.get_logger()


class _Stalled(Exception):
    """The client takes nothing."""


class RequestMiddleware:
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

    async def not_found(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer for every address that no resource has."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        await self.reject(RouteNotFound("see /docs for what there is"), scope, send)

    async def reject(self, why: MqgateError, scope: Scope, send: Send) -> None:
        """There is no such address or method; but who may not come in does not even learn that."""
        headers = dict(scope["headers"])
        request = Request(scope, headers, request_id_of(headers), _no_body)
        try:
            await self._identify(request)
            answer = refuse(why)
        except MqgateError as error:
            answer = refuse(error)
        await _send(send, answer, request.request_id)

    async def preflight(self, methods: str, scope: Scope, send: Send) -> bool:
        """Answer the preflight request of a page whose origin is listed. Return False if this is none."""
        headers = dict(scope["headers"])
        allowed = self._guard.preflight_headers(headers, methods)
        if allowed:
            await _send(send, Response(204, headers=allowed), request_id_of(headers))
        return bool(allowed)

    async def _identify(self, request: Request) -> None:
        """Find out who calls; raise if nobody is known, or if a web page of another origin calls without a key."""
        if not self._access.is_for_all:
            request.principal = await self._access.authenticate(request.header(b"authorization"))
            return
        self._check_anonymous(request)

    def _check_anonymous(self, request: Request, *, is_page: bool = False) -> None:
        self._guard.check(request.scope["method"], request.headers, is_page=is_page)

    async def _admit(self, operation: Operation, request: Request) -> None:
        if operation.is_public:
            # Probes of balancers name hosts of their own. Where there is no key, only loopback clients can connect.
            if self._access.is_for_all:
                self._check_anonymous(request, is_page=operation.is_page)
        elif operation.is_anonymous:
            self._check_anonymous(request)
        elif self._access.is_for_all:
            # A proxy on this machine must not turn everybody into a loopback client.
            if not is_loopback(request.address):
                raise Forbidden("Without a key only clients on loopback are served. Create an admin key.")
            self._check_anonymous(request, is_page=operation.is_page)
        else:
            request.principal = await self._access.authenticate(request.header(b"authorization"))
        if operation.permit is not None:
            operation.permit(request)

    async def serve(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = request_id_of(headers)
        request = Request(scope, headers, request_id, receive)
        self._requests += 1
        try:
            if not operation.is_health:
                self._check_load()
            await self._admit(operation, request)
            if b"content-length" in headers or b"transfer-encoding" in headers:
                await self._read_body(operation, request, receive)
            self._check_query(operation, scope)
            answer = await operation.handler(request)
        except MqgateError as error:
            answer = operation.refuse(error)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a bug becomes an answer, and is logged
            _log.exception("request failed", request_id=request.request_id, operation=operation.name)
            answer = reply(
                500,
                {
                    "status": 500,
                    "code": "internal_error",
                    "title": "A bug in mqgate",
                    "detail": f"look for {request.request_id} in the gateway's log",
                    "retryable": False,
                },
            )._replace(content_type=b"application/problem+json")
        finally:
            self._requests -= 1
            self._bytes -= request.body_bytes
        if b"origin" in headers:
            answer = answer._replace(headers=[*answer.headers, *self._guard.cors_headers(headers)])
        status = answer.status
        if answer.stream is None:
            await send(_start(answer, request_id, (b"content-length", b"%d" % len(answer.body))))
            await send({"type": "http.response.body", "body": answer.body})
        else:
            status = await self._stream(operation, request, answer, answer.stream, send)
        seconds = time.perf_counter() - began
        self._metrics.answered(operation.name, status, seconds)
        if self._log_all or status >= 500:  # noqa: PLR2004 - where HTTP's own failures begin
            self._tell(operation, status, seconds, request)

    async def _stream(
        self, operation: Operation, request: Request, answer: Response, stream: Stream, send: Send
    ) -> int:
        """Send an answer piece by piece; the status that tells how it went."""
        self._requests += 1
        try:
            await send(_start(answer, request.request_id))
            if request.scope["method"] != "HEAD":
                await self._pieces(request, stream, send)
            await self._hand_over(send, b"", is_last=True)
        except ClientDisconnected:
            # Who has seen enough hangs up.
            return answer.status
        except _Stalled:
            return self._cut(operation, request, 408, "nothing was taken")
        except MqgateError as error:
            return self._cut(operation, request, operation.refuse(error).status, error.code)
        except Exception:  # noqa: BLE001 - as for an answer that is whole
            _log.exception("request failed", request_id=request.request_id, operation=operation.name)
            return self._cut(operation, request, 500, "internal_error")
        finally:
            self._requests -= 1
            await stream.aclose()
        return answer.status

    async def _pieces(self, request: Request, stream: Stream, send: Send) -> None:
        async for piece in stream:
            await self._hand_over(send, piece)
            # A server takes pieces also when there is nobody left to send them to.
            if request.is_disconnected():
                raise ClientDisconnected
            # Sending into free buffers never waits: let others have their turn.
            await asyncio.sleep(0)

    async def _hand_over(self, send: Send, piece: bytes | memoryview, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._settings.stall_timeout.total_seconds()):
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        except TimeoutError:
            raise _Stalled from None

    def _cut(self, operation: Operation, request: Request, status: int, why: str) -> int:
        _log.warning("answer cut off", request_id=request.request_id, operation=operation.name, why=why)
        return status

    def _check_load(self) -> None:
        limit = self._settings.max_requests
        # Parked receives have a limit of their own.
        if self._requests - self._parked() > limit:
            raise Overloaded(f"{limit} requests are being worked on: try again", retry_after=1)

    @staticmethod
    def _check_query(operation: Operation, scope: Scope) -> None:
        if operation.query is None and scope["query_string"] and not operation.ignores_query:
            name = unquote_plus(re.split(b"[=&]", scope["query_string"], maxsplit=1)[0].decode("latin-1"))[:100]
            raise UnknownField(f"this call takes no query: {name} is not known here", field=name)

    async def _read_body(self, operation: Operation, request: Request, receive: Receive) -> None:
        """Read the body of a permitted request, within the limits of the operation and of the gateway."""
        limit = operation.max_body_bytes
        length = request.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or len(length) > _LONGEST_NUMBER):
            raise InvalidValue("content-length must be a number", field="content-length")
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
                raise Overloaded("too many bytes are being worked on: try again", retry_after=1)
            chunks.append(chunk)
            if not event.get("more_body"):
                request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                return

    def _tell(self, operation: Operation, status: int, seconds: float, request: Request) -> None:
        _log.info(
            "request answered",
            request_id=request.request_id,
            operation=operation.name,
            status=status,
            path=request.scope["path"],
            ms=round(seconds * 1000, 3),
        )


class Resource:
    """An ASGI endpoint: one address with its methods."""

    def __init__(self, door: RequestMiddleware, operations: Mapping[str, Operation]) -> None:
        self._door = door
        self._operations = operations
        self._refuse = MethodNotAllowed(
            f"use {' or '.join(sorted(operations))} here", allow=", ".join(sorted(operations))
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        # HEAD is GET whose body the server leaves out.
        operation = self._operations.get(method) or (self._operations.get("GET") if method == "HEAD" else None)
        if method == "OPTIONS":
            return self._options(operation, scope, receive, send)
        if operation is None:
            return self._door.reject(self._refuse, scope, send)
        return self._door.serve(operation, scope, receive, send)

    async def _options(self, operation: Operation | None, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._door.preflight(str(self._refuse.members["allow"]), scope, send):
            return
        if operation is None:
            await self._door.reject(self._refuse, scope, send)
        else:
            await self._door.serve(operation, scope, receive, send)


def _too_large(limit: int) -> TooLarge:
    detail = f"a request of this kind may have {limit} bytes" if limit else "this call takes no body"
    return TooLarge(detail, limit=limit)


async def _no_body() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


def _start(answer: Response, request_id: str, *length: tuple[bytes, bytes]) -> MutableMapping[str, Any]:
    return {
        "type": "http.response.start",
        "status": answer.status,
        "headers": [
            (b"content-type", answer.content_type),
            *length,
            (b"x-request-id", request_id.encode()),
            *answer.headers,
        ],
    }


async def _send(send: Send, answer: Response, request_id: str) -> None:
    await send(_start(answer, request_id, (b"content-length", b"%d" % len(answer.body))))
    await send({"type": "http.response.body", "body": answer.body})
