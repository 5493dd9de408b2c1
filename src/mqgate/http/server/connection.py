"""One client connection: HTTP/1.1 parsing, pipelining, deadlines.

The application starts as soon as the head of a request is complete, so that a caller without permission is refused
before its body is read. Phases of a connection, and what ends them:

- HEAD: waiting for a request, or reading its head. Ends `header_timeout` after the first byte (408), or after
  `idle_timeout` on a connection that waits for its next request.
- BODY: the body is arriving. Ends after `body_timeout` plus one second for each `min_rate` bytes that arrived (408).
  With the size limits of requests this bounds the slowest body: by default 30 s + 8 MiB / 8 KiB/s = 18 min.
- BUSY: the application is preparing the response, or the client is waiting in a long poll. No deadline.
- LINGER: the response was sent before the body had arrived completely. What still arrives is discarded for a moment,
  because closing a socket with unread data would destroy the response on its way.
- CLOSING: closed; written data is being flushed.

In every phase, a client that does not read its response is disconnected after `stall_timeout` plus one second for
each `min_rate` bytes that it has left unread.

Requests that arrive before the current one has its response are parsed and queued. Reading goes on meanwhile, so that
a disconnect is noticed, until the queued requests take 64 KiB; beyond that a disconnect is noticed with the response.

A client that closes its side of the connection after its requests (`nc -N`) gets the responses, except from handlers
that ask whether it is still there: a long poll ends, and its messages are released. A closed socket looks the same.

A request to upgrade (the JDK's client sends one for h2c by default) is ignored, as RFC 9110 allows. The parser takes
the rest of an upgraded connection for another protocol and stops; a new parser, which is fed the framing headers
again, reads the body.
"""

import asyncio
import math
from typing import Any

import httptools

from mqgate.core.errors import HeadersTooLarge, MalformedRequest, MqgateError, Overloaded, RequestTimeout
from mqgate.http.server.exchange import Exchange, refusal
from mqgate.http.server.head import Headers, scope_of
from mqgate.http.server.owner import Eviction, Owner, Phase

__all__ = ["Connection"]

# A body of this size is read to its end after an early response. For a larger one the connection is closed.
_MAX_DISCARDED_BODY = 64 << 10
# Requests that may wait behind the current one, and the memory that they may take before reading is paused.
_MAX_PIPELINED = 100
_MAX_PIPELINED_BYTES = 64 << 10
# Memory of a parsed request besides its bytes.
_REQUEST_OVERHEAD = 2 << 10
# Each header takes about 150 bytes of memory besides its bytes.
_MAX_HEADERS = 100
# Data is parsed in parts, because the part in which a head begins is not counted against `max_header_bytes`.
_MAX_PART = 16 << 10
# More than this counts against `max_unread_bytes`.
_MAX_UNCOUNTED_RESPONSE = 16 << 10
_LINGER_SECONDS = 2.0
_FRAMING = {b"content-length", b"transfer-encoding"}
# Why a connection is aborted whose phase has no response left to send.
_OVERDUE = {Phase.BODY: "body_timeout", Phase.LINGER: "linger", Phase.CLOSING: "unread_response"}


class Connection(asyncio.Protocol):
    __slots__ = (
        "_client",
        "_exchange",
        "_has_progressed",
        "_head_bytes",
        "_head_read",
        "_headers",
        "_incoming",
        "_is_half_closed",
        "_is_in_head",
        "_is_reading_paused",
        "_is_replaying",
        "_is_upgrade",
        "_parser",
        "_peer_is_proxy",
        "_pipeline",
        "_pipelined_bytes",
        "_refusal",
        "_server",
        "_transport",
        "_url",
        "_write_waiter",
        "address",
        "deadline",
        "eviction",
        "is_write_paused",
        "last_used",
        "phase",
        "served",
        "stalled_at",
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
        self._pipeline: list[Exchange] = []
        self._pipelined_bytes = 0
        self._refusal: MqgateError | None = None
        self._headers: Headers = []
        self._url = b""
        # Size of the request line, headers and trailers that were parsed, and of what was read since a head began,
        # a part of a body arrived or a request was complete.
        self._head_bytes = 0
        self._head_read = 0
        self._has_progressed = False
        self._is_in_head = True
        self._is_upgrade = False
        self._is_replaying = False
        self._is_reading_paused = False
        self._is_half_closed = False
        self._write_waiter: asyncio.Future[None] | None = None
        self.stalled_at = math.inf
        self.is_write_paused = False
        self.address = ""
        self.phase = Phase.HEAD
        self.eviction: Eviction | None = None
        self.deadline = math.inf
        self.last_used = 0.0
        self.served = 0

    # Transport

    def connection_made(self, transport: Any) -> None:
        """Start the deadline of the first request."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_MAX_UNCOUNTED_RESPONSE)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._client = (peer[0], peer[1])
            self.address = peer[0]
        self._peer_is_proxy = self.address in self._server.trusted_proxies
        self.last_used = self._server.loop.time()
        self.deadline = self.last_used + self._server.settings.header_timeout.total_seconds()
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
        self.resume_writing()
        # These refer to this connection. Without them it is freed now, and not by the garbage collector.
        del self._parser
        self._exchange = self._incoming = None
        self._pipeline.clear()

    def eof_received(self) -> bool:
        """Serve the requests that are complete, then close the connection."""
        if self._exchange is None or self._incoming is self._exchange:
            return False
        self._is_half_closed = True
        if self._incoming is not None:
            self._incoming = None
            self._pipeline.pop()
        for exchange in (self._exchange, *self._pipeline):
            exchange.half_close()
        return True

    def data_received(self, data: bytes) -> None:
        rest: bytes | memoryview = data if len(data) <= _MAX_PART else memoryview(data)
        while rest and self._refusal is None and self.phase is not Phase.LINGER and self.phase is not Phase.CLOSING:
            rest = rest[self._parse(rest[:_MAX_PART]) :]

    def _parse(self, part: bytes | memoryview) -> int:
        """Feed the parser. Return how many bytes it took: not all of them if a request asks for an upgrade."""
        if self._is_in_head and not self._head_read and self._exchange is None:
            self.deadline = self._server.loop.time() + self._server.settings.header_timeout.total_seconds()
        taken = len(part)
        self._has_progressed = False
        try:
            self._parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            taken = upgrade.args[0]
            self._ignore_upgrade()
        except httptools.HttpParserCallbackError:
            # A fault of this class and not of the client: the event loop logs it and closes the connection.
            raise
        except httptools.HttpParserError as error:
            self._refuse(MalformedRequest(f"The request is not valid HTTP/1.1: {error}."))
        if not self._has_progressed:
            self._head_read += taken
            if self._head_read > self._server.max_header_bytes:
                self._refuse_head()
        if self._pipeline:
            self._pipelined_bytes += taken
            if self._pipelined_bytes > _MAX_PIPELINED_BYTES:
                self.pause_reading()
        if self._refusal is not None:
            self._end_with_refusal()
        else:
            self._update_phase()
        return taken

    def _update_phase(self) -> None:
        if self._exchange is None:
            if self.phase is Phase.BODY and self._incoming is None:
                # The rest of a body arrived after its response.
                self._await_request()
        elif self._incoming is not self._exchange:
            self.phase = Phase.BUSY
            self.deadline = math.inf
        elif self.phase is not Phase.BODY:
            self.phase = Phase.BODY
            self.deadline = self._server.loop.time() + self._server.settings.body_timeout.total_seconds()

    def _await_request(self) -> None:
        self.phase = Phase.HEAD
        settings = self._server.settings
        self.last_used = self._server.loop.time()
        self.deadline = self.last_used + (
            settings.header_timeout.total_seconds() if self._head_read else settings.idle_timeout.total_seconds()
        )

    def pause_writing(self) -> None:
        self.is_write_paused = True
        self.stalled_at = self._server.loop.time()
        self._update_eviction()

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self.stalled_at = math.inf
        self._update_eviction()
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

    def on_url(self, url: bytes) -> None:
        if not self._is_replaying:
            self._url += url
            self._head_bytes += len(url)
            if self._head_bytes > self._server.max_header_bytes:
                self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_replaying or self._refusal is not None:
            return
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._server.max_header_bytes:
            self._refuse_head()
        if not self._is_in_head:
            # A trailer: counted, so that it is bounded, and dropped.
            return
        if len(self._headers) >= _MAX_HEADERS:
            self._refuse(HeadersTooLarge(f"A request may have {_MAX_HEADERS} headers.", limit=_MAX_HEADERS))
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._progress()
        if self._is_replaying:
            self._is_replaying = False
            return
        self._is_upgrade = self._parser.should_upgrade()
        if self._refusal is None:
            self._accept_request()

    def _accept_request(self) -> None:
        if len(self._pipeline) >= _MAX_PIPELINED:
            self._refuse(MalformedRequest(f"At most {_MAX_PIPELINED} requests can be pipelined."))
            return
        version = self._parser.get_http_version()
        try:
            scope = scope_of(self._parser.get_method().decode("ascii"), self._url, version, self._headers)
        except MalformedRequest as error:
            self._refuse(error)
            return
        scope["client"], scope["scheme"] = self._client, "http"
        if self._peer_is_proxy:
            address, forwarded_scheme = self._server.trusted_proxies.forwarded(self.address, self._headers)
            scope["client"], scope["scheme"] = (address, 0), forwarded_scheme or "http"
        exchange = Exchange(self, scope, is_keep_alive=version == "1.1" and self._parser.should_keep_alive())
        self._incoming = exchange
        if self._exchange is None:
            self._begin(exchange)
        else:
            self._pipeline.append(exchange)
            self._pipelined_bytes += _REQUEST_OVERHEAD

    def on_body(self, body: bytes) -> None:
        self._progress()
        if self._refusal is not None or self._incoming is None:
            return
        self.deadline += len(body) / self._server.settings.min_rate
        if not self._incoming.is_complete:
            self._incoming.add_body(body)

    def on_message_complete(self) -> None:
        self._progress()
        if self._is_upgrade:
            # The parser stops at the head. The body, if there is one, is read by another parser.
            return
        self._is_in_head = True
        if self._incoming is not None:
            self._incoming.complete_body()
            self._incoming = None

    def _progress(self) -> None:
        self._has_progressed = True
        self._head_read = self._head_bytes = 0

    def _ignore_upgrade(self) -> None:
        """Let another parser read the body of a request whose upgrade is ignored, and the requests that follow it."""
        self._parser = httptools.HttpRequestParser(self)
        self._is_upgrade = False
        if self._refusal is None:
            framing = b"".join(b"%b: %b\r\n" % pair for pair in self._headers if pair[0] in _FRAMING)
            self._is_replaying = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    # Requests and responses

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.phase = Phase.BUSY
        self.deadline = math.inf
        self._update_eviction()
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
            return bool(self._pipeline) or self._refusal is not None or not self._is_half_closed
        return exchange.declared_length() <= _MAX_DISCARDED_BODY and not exchange.awaits_continue()

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
            self.last_used = self._server.loop.time()
            self._begin(self._pipeline.pop(0))
            self._update_phase()
            if not self._pipeline:
                self._pipelined_bytes = 0
                self.resume_reading()
        elif self._refusal is not None:
            self._end_with_refusal()
        elif self._is_half_closed:
            self.close()
        else:
            self.resume_reading()
            if self._incoming is None:
                self._await_request()
            self._update_eviction()

    def _refuse_head(self) -> None:
        limit = self._server.max_header_bytes
        self._refuse(HeadersTooLarge(f"The request line and headers may have {limit} bytes.", limit=limit))

    def _refuse(self, error: MqgateError) -> None:
        """Note why this request is refused. Earlier requests of the connection get their responses first."""
        if self._refusal is None:
            self._refusal = error
        if self._pipeline and self._pipeline[-1] is self._incoming:
            # Its body is malformed, so it can never be complete.
            self._pipeline.pop()
            self._incoming = None

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
        self.write(refusal(error, self.date_line))

    # Ends

    def _update_eviction(self) -> None:
        if self.is_write_paused:
            eviction: Eviction | None = Eviction.STALLED
        elif self._exchange is not None or self.phase is Phase.CLOSING:
            eviction = None
        else:
            eviction = Eviction.IDLE if self.served else Eviction.NEW
        if eviction is not self.eviction:
            self._server.set_eviction(self, eviction)

    def check_deadline(self, now: float) -> None:
        """Close the connection if its client takes too long."""
        if self.stalled_at + self._patience(self._server.settings.stall_timeout.total_seconds()) < now:
            self.abort("unread_response")
        elif self.deadline >= now:
            return
        elif self.phase is Phase.HEAD and not self._head_read:
            self._server.count_closed("idle")
            self.close()
        elif self.phase is Phase.HEAD or (self.phase is Phase.BODY and self._is_response_pending()):
            self._time_out()
        else:
            self.abort(_OVERDUE[self.phase])

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

    @property
    def held_bytes(self) -> int:
        """Return how much memory this client makes the server hold: unread responses, heads, pipelined requests."""
        held = self._head_read + self._pipelined_bytes
        return held + self._transport.get_write_buffer_size() if self.is_write_paused else held

    @property
    def waiting_since(self) -> float:
        return self.stalled_at if self.is_write_paused else self.last_used

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
        self.deadline = self._server.loop.time() + self._patience(self._server.settings.stall_timeout.total_seconds())
        self._update_eviction()

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
        self._update_eviction()
