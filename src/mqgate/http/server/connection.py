"""One client connection: HTTP/1.1 parsing, pipelining, deadlines.

The application starts as soon as the head of a request is complete, so that a caller without permission is refused
before its body is read. Phases of a connection, and what ends them:

- HEAD: waiting for a request, or reading its head. Ends `header_timeout` after the first byte (408), or after
  `idle_timeout` on a connection that waits for its next request.
- BODY: the body is arriving. Ends after `body_timeout` plus one second for each `min_rate` bytes that arrived (408).
- BUSY: the application is preparing the response, or the client is waiting in a long poll. No deadline.
- LINGER: the response was sent before the body had arrived completely. What still arrives is discarded for a moment,
  because closing a socket with unread data would destroy the response on its way.
- CLOSING: closed; written data is being flushed.

In every phase, a client that does not read its response is disconnected after `stall_timeout` plus one second for
each `min_rate` bytes that it has left unread.

A request to upgrade (the JDK's client sends one for h2c by default) is ignored, as RFC 9110 allows. The parser takes
the rest of an upgraded connection for another protocol and stops; a new parser, which is fed the framing headers
again, reads the body.
"""

import asyncio
import enum
import math
import urllib.parse
from collections import deque
from typing import Any, Protocol

import httptools

from mqgate.core.errors import HeadersTooLarge, MalformedRequest, MqgateError, Overloaded, RequestTimeout
from mqgate.http.exchange import refuse
from mqgate.http.request_id import new_request_id
from mqgate.http.server.exchange import STATUS_LINES, AsgiApp, Exchange
from mqgate.http.server.forwarded import Networks
from mqgate.settings import HttpSettings

__all__ = ["Connection", "Owner", "Phase"]

# A body of this size is read to its end after an early response. For a larger one the connection is closed.
_MAX_DISCARDED_BODY = 64 << 10
# Requests that may wait behind the current one. They arrived in one read; reading is paused meanwhile.
_MAX_PIPELINED = 100
_LINGER_SECONDS = 2.0
_FRAMING = {b"content-length", b"transfer-encoding"}
_CHUNKED = b"chunked"


class Phase(enum.Enum):
    HEAD = enum.auto()
    BODY = enum.auto()
    BUSY = enum.auto()
    LINGER = enum.auto()
    CLOSING = enum.auto()


class Owner(Protocol):
    """What a connection needs of the server that accepted it."""

    app: AsgiApp
    settings: HttpSettings
    trusted_proxies: Networks
    date_line: bytes
    is_stopping: bool
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]

    def admit(self, connection: "Connection") -> bool:
        """Count a new connection; False if a limit is reached."""

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that has ended."""

    def count_closed(self, reason: str) -> None:
        """Count a connection that the server closed, by reason."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "_client",
        "_declared",
        "_exchange",
        "_head_bytes",
        "_head_read",
        "_headers",
        "_incoming",
        "_is_head_only",
        "_is_in_head",
        "_is_reading_paused",
        "_is_replaying",
        "_is_upgrade",
        "_parser",
        "_peer_is_proxy",
        "_pipeline",
        "_refusal",
        "_server",
        "_stalled_at",
        "_transport",
        "_url",
        "_write_waiter",
        "address",
        "deadline",
        "is_write_paused",
        "last_used",
        "phase",
        "served",
    )

    def __init__(self, server: Owner) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._client: tuple[str, int] = ("", 0)
        self._peer_is_proxy = False
        self._exchange: Exchange | None = None
        # The exchange whose body is arriving: the current one, or the last one of the pipeline.
        self._incoming: Exchange | None = None
        self._pipeline: deque[Exchange] = deque()
        self._refusal: MqgateError | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        # Size of the request line and headers that were parsed, and of what was read for a head that is not complete.
        self._head_bytes = 0
        self._head_read = 0
        self._declared: int | None = 0
        self._is_in_head = True
        self._is_head_only = True
        self._is_upgrade = False
        self._is_replaying = False
        self._is_reading_paused = False
        self._write_waiter: asyncio.Future[None] | None = None
        self._stalled_at = math.inf
        self.is_write_paused = False
        self.address = ""
        self.phase = Phase.HEAD
        self.deadline = math.inf
        self.last_used = 0.0
        self.served = 0

    # Transport

    def connection_made(self, transport: Any) -> None:
        """Start the deadline of the first request."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._client = (peer[0], peer[1])
            self.address = peer[0]
        self._peer_is_proxy = self.address in self._server.trusted_proxies
        self.last_used = self._server.loop.time()
        self.deadline = self.last_used + self._server.settings.header_timeout
        if not self._server.admit(self):
            self._server.count_closed("refused")
            self._write_refusal(Overloaded("The connection limit is reached. Try again later.", retry_after=1))
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Report the disconnect to every exchange that is not complete."""
        self._server.discard(self)
        self.phase = Phase.CLOSING
        for exchange in (self._exchange, *self._pipeline):
            if exchange is not None and not exchange.is_complete:
                exchange.disconnect()
        self._pipeline.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.LINGER or self.phase is Phase.CLOSING or self._is_refused():
            return
        if self._is_in_head and not self._head_read and self._exchange is None:
            self.deadline = self._server.loop.time() + self._server.settings.header_timeout
        # Stays as it is while a head goes on for the whole of this data.
        self._is_head_only = self._is_in_head
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_after_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(MalformedRequest(f"The request is not valid HTTP/1.1: {error}."))
        if self._is_head_only:
            self._head_read += len(data)
            self._check_head(self._head_read)
        if self._is_refused():
            self._end_with_refusal()
        else:
            self._update_phase()

    def _update_phase(self) -> None:
        if self._incoming is not None:
            if self.phase is not Phase.BODY and self._incoming is self._exchange:
                self.phase = Phase.BODY
                self.deadline = self._server.loop.time() + self._server.settings.body_timeout
        elif self._exchange is not None:
            self.phase = Phase.BUSY
            self.deadline = math.inf
        elif self.phase is Phase.BODY:
            # The rest of a body arrived after its response.
            self._await_request()

    def _await_request(self) -> None:
        self.phase = Phase.HEAD
        settings = self._server.settings
        self.last_used = self._server.loop.time()
        self.deadline = self.last_used + (settings.header_timeout if self._head_read else settings.idle_timeout)

    def pause_writing(self) -> None:
        self.is_write_paused = True
        self._stalled_at = self._server.loop.time()

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self._stalled_at = math.inf
        if self._write_waiter is not None and not self._write_waiter.done():
            self._write_waiter.set_result(None)

    async def wait_writable(self) -> None:
        """Wait until the client has read enough of what was written, or has disconnected."""
        while self.is_write_paused:
            if self._write_waiter is None or self._write_waiter.done():
                self._write_waiter = self._server.loop.create_future()
            await asyncio.shield(self._write_waiter)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = False
            self._transport.resume_reading()

    # Parser callbacks

    def on_message_begin(self) -> None:
        self._head_read += 1
        if not self._is_replaying:
            self._url = b""
            self._headers = []
            self._declared = 0

    def on_url(self, url: bytes) -> None:
        if not self._is_replaying:
            self._url += url
            self._head_bytes += len(url)
            self._check_head(self._head_bytes)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_replaying:
            return
        self._head_bytes += len(name) + len(value) + 4
        self._check_head(self._head_bytes)
        if not self._is_in_head:
            # A trailer: counted, so that it is bounded, and dropped.
            return
        name = name.lower()
        if name == b"content-length":
            # The parser has checked that it is a number.
            self._declared = int(value)
        elif name == b"transfer-encoding":
            self._declared = None
            if value.strip().lower() != _CHUNKED:
                self._refuse(MalformedRequest("The only Transfer-Encoding that is supported is chunked."))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_replaying:
            self._is_replaying = False
            return
        self._is_in_head = self._is_head_only = False
        self._head_bytes = self._head_read = 0
        self._is_upgrade = self._parser.should_upgrade()
        if self._refusal is None:
            self._accept_request()

    def _accept_request(self) -> None:
        headers = dict(self._headers)
        if len(headers) < len(self._headers) and sum(name == b"host" for name, _ in self._headers) > 1:
            self._refuse(MalformedRequest("The Host header was sent more than once."))
            return
        try:
            url = httptools.parse_url(self._url)
            path = url.path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            self._refuse(MalformedRequest("The request target is not a path."))
            return
        if len(self._pipeline) >= _MAX_PIPELINED:
            self._refuse(MalformedRequest(f"At most {_MAX_PIPELINED} requests can be pipelined."))
            return
        client, scheme = self._client, "http"
        if self._peer_is_proxy:
            address, forwarded_scheme = self._server.trusted_proxies.forwarded(self.address, self._headers)
            client, scheme = (address, 0), forwarded_scheme or "http"
        version = self._parser.get_http_version()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "scheme": scheme,
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._headers,
            "client": client,
        }
        exchange = Exchange(
            self,
            scope,
            is_keep_alive=version == "1.1" and self._parser.should_keep_alive(),
            expects_continue=headers.get(b"expect", b"").lower() == b"100-continue",
        )
        self._incoming = exchange
        if self._exchange is None:
            self._begin(exchange)
        else:
            self._pipeline.append(exchange)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None or self._incoming is None:
            return
        self.deadline += len(body) / self._server.settings.min_rate
        if not self._incoming.is_complete:
            self._incoming.add_body(body)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            # The parser stops at the head. The body, if there is one, is read by another parser.
            return
        self._is_in_head = True
        self._head_bytes = self._head_read = 0
        if self._incoming is not None:
            self._incoming.complete_body()
            self._incoming = None

    def _read_after_upgrade(self, rest: bytes) -> None:
        """Read the body of a request whose upgrade is ignored, and the requests that follow it."""
        self._parser = httptools.HttpRequestParser(self)
        self._is_upgrade = False
        if self._refusal is not None:
            self._end_with_refusal()
            return
        framing = b"".join(b"%b: %b\r\n" % pair for pair in self._headers if pair[0] in _FRAMING)
        self._is_replaying = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
        if rest:
            self.data_received(rest)
        else:
            self._update_phase()

    # Requests and responses

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        task = self._server.loop.create_task(exchange.run(self._server.app))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    @property
    def date_line(self) -> bytes:
        return self._server.date_line

    def may_stay_open(self, exchange: Exchange) -> bool:
        """Return whether the connection can serve another request after this one."""
        if not exchange.is_keep_alive or self._server.is_stopping:
            return False
        if exchange.is_body_complete:
            return True
        return self._declared is not None and self._declared <= _MAX_DISCARDED_BODY and not exchange.expects_continue

    def response_completed(self, exchange: Exchange) -> None:
        """Go on with the next request, or close the connection."""
        self._exchange = None
        self.served += exchange.status < 400  # noqa: PLR2004 - where HTTP's errors begin
        if not exchange.is_keep_alive:
            if exchange.is_body_complete:
                self.close()
            else:
                self._linger()
        elif self._pipeline:
            self._begin(self._pipeline.popleft())
            if not self._pipeline:
                self.resume_reading()
        elif self._refusal is not None:
            self._end_with_refusal()
        else:
            self.resume_reading()
            if self._incoming is None:
                self._await_request()

    def _check_head(self, size: int) -> None:
        limit = self._server.settings.max_header_bytes
        if size > limit:
            self._refuse(HeadersTooLarge(f"The request line and headers may have {limit} bytes.", limit=limit))

    def _refuse(self, error: MqgateError) -> None:
        """Note why this request is refused. Earlier requests of the connection get their responses first."""
        if self._refusal is None:
            self._refusal = error
        if self._pipeline and self._pipeline[-1] is self._incoming:
            # Its body is malformed, so it can never be complete.
            self._pipeline.pop()
            self._incoming = None

    def _is_refused(self) -> bool:
        return self._refusal is not None

    def _end_with_refusal(self) -> None:
        if self._exchange is not None and not self._exchange.is_complete:
            if self._incoming is not self._exchange or self._exchange.is_started:
                self.pause_reading()
                return
            self._exchange.disconnect()
            self._exchange = None
        assert self._refusal is not None  # noqa: S101 - for the type checker
        self._server.count_closed(self._refusal.code)
        self._write_refusal(self._refusal)
        self._linger()

    def _write_refusal(self, error: MqgateError) -> None:
        response = refuse(error)
        headers = (
            (b"content-type", response.content_type),
            (b"content-length", b"%d" % len(response.body)),
            (b"x-request-id", new_request_id().encode()),
            (b"connection", b"close"),
            *response.headers,
        )
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.write(STATUS_LINES[response.status] + self.date_line + lines + b"\r\n" + response.body)

    # Ends

    def check_deadline(self, now: float) -> None:
        """Close the connection if its client takes too long."""
        settings = self._server.settings
        if self._stalled_at < now and self._stalled_at + self._patience(settings.stall_timeout) < now:
            self.abort("unread_response")
        elif self.deadline >= now:
            return
        elif self.phase is Phase.HEAD and not self._head_read:
            self._server.count_closed("idle")
            self.close()
        elif self.phase is Phase.HEAD or (self.phase is Phase.BODY and self._is_response_pending()):
            self._time_out()
        else:
            self.abort("linger" if self.phase is Phase.LINGER else "body_timeout")

    def _patience(self, timeout: float) -> float:
        return timeout + self._transport.get_write_buffer_size() / self._server.settings.min_rate

    def _is_response_pending(self) -> bool:
        return self._exchange is not None and not self._exchange.is_started

    def _time_out(self) -> None:
        is_head = self.phase is Phase.HEAD
        part = "head" if is_head else "body"
        self._server.count_closed(f"{'header' if is_head else 'body'}_timeout")
        self._write_refusal(RequestTimeout(f"The {part} of the request did not arrive in time. Send it again."))
        if self._exchange is not None:
            self._exchange.disconnect()
        self.close()

    def is_unused(self) -> bool:
        """Return whether no request is being served, so that closing the connection interrupts nothing."""
        return self._exchange is None and self.phase is not Phase.CLOSING

    @property
    def unread_bytes(self) -> int:
        """Return how many written bytes the client has not read yet."""
        return self._transport.get_write_buffer_size() if self.is_write_paused else 0

    @property
    def stalled_at(self) -> float:
        return self._stalled_at

    def finish(self) -> None:
        """Close the connection now if it is unused, otherwise after its response."""
        if self._exchange is None:
            self.close()
        elif not self._exchange.is_started:
            self._exchange.is_keep_alive = False

    def close(self) -> None:
        """Close the connection once everything that was written is flushed."""
        self.phase = Phase.CLOSING
        self._transport.close()
        self.deadline = self._server.loop.time() + self._patience(_LINGER_SECONDS)

    def abort(self, reason: str) -> None:
        """Close the connection at once and drop what was written."""
        self._server.count_closed(reason)
        self._transport.abort()

    def _linger(self) -> None:
        self.phase = Phase.LINGER
        self.deadline = self._server.loop.time() + self._patience(_LINGER_SECONDS)
        if not self._transport.is_closing():
            self._transport.write_eof()
        self.resume_reading()
