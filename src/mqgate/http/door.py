"""The door: what every request passes, on every surface, in one place.

limits -> caller -> body -> handler -> answer. An error becomes a problem document here and nowhere else; a bug
becomes a 500 with the request's id, and is logged with it.

A streamed answer has said 200 before it is whole. Whatever goes wrong then leaves it unfinished, upon which the server
closes the connection, so that nobody takes the part for the whole. It counts with the status of what went wrong.
"""

import asyncio
import itertools
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import chain
from typing import Any
from urllib.parse import unquote_plus

import structlog

from mqgate.consumption.long_poll import ClientGone
from mqgate.control.access.service import Access
from mqgate.core.errors import (
    HeadersTooLarge,
    InvalidValue,
    MethodNotAllowed,
    MqgateError,
    Overloaded,
    RouteNotFound,
    TooLarge,
    UnknownField,
)
from mqgate.http.exchange import Answer, Request, Stream, refuse, reply
from mqgate.http.operation import Operation
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_SANE_ID = re.compile(rb"[A-Za-z0-9._:+/=-]{1,128}")
# Unique over restarts and gateways by the prefix, within the process by the number.
_ID_PREFIX = os.urandom(4).hex()
_numbers = itertools.count()
_LONGEST_NUMBER = 18
_log = structlog.get_logger()


class _Stalled(Exception):
    """The client takes nothing."""


class Door:
    def __init__(self, access: Access, metrics: Metrics, settings: HttpSettings, log_requests: str) -> None:
        self._access = access
        self._metrics = metrics
        self._settings = settings
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
        await self.turn_away(RouteNotFound("see /docs for what there is"), scope, send)

    async def turn_away(self, why: MqgateError, scope: Scope, send: Send) -> None:
        """There is no such address or method; but who may not come in does not even learn that."""
        headers = dict(scope["headers"])
        try:
            await self._access.authenticate(headers.get(b"authorization", b"").decode("latin-1"))
            answer = refuse(why)
        except MqgateError as error:
            answer = refuse(error)
        await _send(send, answer, _request_id(headers))

    async def serve(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        request = Request(scope, headers, request_id, receive)
        size = 0
        self._requests += 1
        try:
            self._check(scope)
            if not operation.is_public and (b"authorization" in headers or not self._access.is_for_all):
                request.principal = await self._access.authenticate(request.header(b"authorization"))
            size = self._reserve(scope, operation, headers)
            if size:
                event = await receive()
                # Mostly all of it has come by now.
                body = event.get("body", b"")
                if len(body) > size or event.get("more_body") or event["type"] == "http.disconnect":
                    body = await self._body(event, receive, size)
                request.body = body
            answer = await operation.handler(request)
        except MqgateError as error:
            answer = operation.refuse(error)
        except ClientGone:
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
            self._bytes -= size
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

    async def _stream(self, operation: Operation, request: Request, answer: Answer, stream: Stream, send: Send) -> int:
        """Send an answer piece by piece; the status that tells how it went."""
        self._requests += 1
        try:
            await send(_start(answer, request.request_id))
            if request.scope["method"] != "HEAD":
                await self._pieces(request, stream, send)
            await self._hand_over(send, b"", is_last=True)
        except ClientGone:
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
            if request.is_gone():
                raise ClientGone
            # Sending into free buffers never waits: let others have their turn.
            await asyncio.sleep(0)

    async def _hand_over(self, send: Send, piece: bytes | memoryview, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._settings.stall_timeout):
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        except TimeoutError:
            raise _Stalled from None

    def _cut(self, operation: Operation, request: Request, status: int, why: str) -> int:
        _log.warning("answer cut off", request_id=request.request_id, operation=operation.name, why=why)
        return status

    def _check(self, scope: Scope) -> None:
        settings = self._settings
        if self._requests > settings.max_requests:
            raise Overloaded(f"{settings.max_requests} requests are being worked on: try again", retry_after=1)
        # Joined, although only the length is wanted: to add them up one by one takes three times as long.
        size = len(b"".join(chain.from_iterable(scope["headers"])))
        if size > settings.max_header_bytes:
            raise HeadersTooLarge(
                f"headers may have {settings.max_header_bytes} bytes", limit=settings.max_header_bytes
            )

    def _reserve(self, scope: Scope, operation: Operation, headers: Mapping[bytes, bytes]) -> int:
        """Room for the body of a call that can be made so; without a length, for the largest one."""
        settings = self._settings
        if operation.query is None and scope["query_string"] and not operation.ignores_query:
            name = unquote_plus(re.split(b"[=&]", scope["query_string"], maxsplit=1)[0].decode("latin-1"))
            raise UnknownField(f"this call takes no query: {name} is not known here", field=name)
        length = headers.get(b"content-length")
        if length is None:
            size = settings.max_request_bytes if b"transfer-encoding" in headers else 0
        elif not length.isdigit() or len(length) > _LONGEST_NUMBER:
            raise InvalidValue("content-length must be a number", field="content-length")
        else:
            size = int(length)
        if size > settings.max_request_bytes:
            raise TooLarge(f"a request may have {settings.max_request_bytes} bytes", limit=settings.max_request_bytes)
        if self._bytes + size > settings.max_bytes_in_flight:
            raise Overloaded("too many bytes are being worked on: try again", retry_after=1)
        self._bytes += size
        return size

    async def _body(self, event: MutableMapping[str, Any], receive: Receive, size: int) -> bytes:
        """A body from its first event on."""
        chunks = []
        seen = 0
        while True:
            if event["type"] == "http.disconnect":
                raise ClientGone
            chunk = event.get("body", b"")
            seen += len(chunk)
            if seen > size:
                raise TooLarge(f"a request may have {size} bytes", limit=size)
            chunks.append(chunk)
            if not event.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            event = await receive()

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

    def __init__(self, door: Door, operations: Mapping[str, Operation]) -> None:
        self._door = door
        self._operations = operations
        self._refuse = MethodNotAllowed(
            f"use {' or '.join(sorted(operations))} here", allow=", ".join(sorted(operations))
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        # HEAD is GET whose body the server leaves out.
        operation = self._operations.get(method) or (self._operations.get("GET") if method == "HEAD" else None)
        if operation is None:
            return self._door.turn_away(self._refuse, scope, send)
        return self._door.serve(operation, scope, receive, send)


def new_request_id() -> str:
    return f"{_ID_PREFIX}{next(_numbers):08x}"


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id")
    if given is not None and _SANE_ID.fullmatch(given):
        return given.decode()
    return new_request_id()


def _start(answer: Answer, request_id: str, *length: tuple[bytes, bytes]) -> MutableMapping[str, Any]:
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


async def _send(send: Send, answer: Answer, request_id: str) -> None:
    await send(_start(answer, request_id, (b"content-length", b"%d" % len(answer.body))))
    await send({"type": "http.response.body", "body": answer.body})
