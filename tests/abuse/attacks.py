"""The attacks, as a table. Each is what one connection does; the attacker does it on many, again and again.

The attacker has no key, except to ask for large responses. An attack that does not use CPU must not slow the gateway
down. One that does is a flood: then clients with a key may be slower, but see no error.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["ATTACKS", "Attack", "Peer"]

MIB = 1 << 20
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
PUBLISH = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


class Peer:
    """One connection of the attacker."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, drip_interval: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._drip_interval = drip_interval
        self.key = key

    async def send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()

    async def drip(self, byte: bytes) -> None:
        """Send a byte now and then, until the gateway has closed the connection in both directions."""
        await asyncio.sleep(random.uniform(0, self._drip_interval))
        while True:
            await self.send(byte)
            await asyncio.sleep(self._drip_interval)

    async def flood(self, data: bytes, size: int) -> None:
        """Send this again and again, up to a size, then read until the gateway closes the connection."""
        for _ in range(0, size, len(data)):
            if self._reader.at_eof():
                return
            await self.send(data)
        await self.closed()

    async def response(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length or 0))

    async def closed(self) -> None:
        """Read until the gateway closes the connection."""
        while await self._reader.read(MIB):
            pass

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def abort(self) -> None:
        self._writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


class Attack(NamedTuple):
    """`closed_for` is a reason of mqgate_connections_closed_total that must be counted: the defence has worked."""

    name: str
    behave: Behaviour
    closed_for: str | None
    is_flood: bool = False
    # Share of the attacker's connections that it uses.
    share: float = 0.3


async def slow_head(peer: Peer) -> None:
    await peer.send(LIVEZ + b"X-Slow: ")
    await peer.drip(b"a")


async def slow_large_head(peer: Peer) -> None:
    await peer.send(LIVEZ + b"X-Large: " + b"a" * 60_000)
    await peer.drip(b"a")


async def slow_body(peer: Peer) -> None:
    await peer.send(PUBLISH + b"Content-Length: 60000\r\n\r\n")
    await peer.drip(b"a")


async def slow_reader(peer: Peer) -> None:
    peer.stop_reading()
    # Padded, because more than 100 requests in one segment are refused.
    padded = PUBLISH + b"X-Padding: " + b"a" * 3_000 + b"\r\nContent-Length: 0\r\n\r\n"
    while True:
        await peer.send(padded)


async def slow_reader_of_large_responses(peer: Peer) -> None:
    peer.stop_reading()
    # About 130 KB each: 60 of them fill the buffers of the kernel.
    request = f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {peer.key}\r\n\r\n"
    await peer.send(request.encode() * 60)
    await peer.drip(b"\r\n")


async def idle(peer: Peer) -> None:
    await peer.closed()


async def idle_after_a_request(peer: Peer) -> None:
    await peer.send(LIVEZ + b"\r\n")
    await peer.closed()


def declares_body(head: bytes) -> Behaviour:
    async def declare(peer: Peer) -> None:
        await peer.send(head)
        await peer.drip(b"")

    return declare


def sends(*segments: bytes) -> Behaviour:
    """Send one request, which the gateway refuses by closing the connection."""

    async def send(peer: Peer) -> None:
        for segment in segments:
            await peer.send(segment)
            await asyncio.sleep(0)
        await peer.closed()

    return send


def floods(start: bytes, repeated: bytes, size: int) -> Behaviour:
    async def flood(peer: Peer) -> None:
        await peer.send(start)
        await peer.flood(repeated, size)

    return flood


async def pipelines(peer: Peer) -> None:
    while True:
        await peer.send((LIVEZ + b"\r\n") * 50)
        for _ in range(50):
            await peer.response()


async def pipelines_too_many(peer: Peer) -> None:
    await peer.send((LIVEZ + b"\r\n") * 2_000)
    await peer.closed()


def upgrades(*, is_split: bool) -> Behaviour:
    head, body = PUBLISH + UPGRADE + b"Content-Length: 5\r\n\r\n", b"hello"

    async def upgrade(peer: Peer) -> None:
        while True:
            for segment in (head, body) if is_split else (head + body,):
                await peer.send(segment)
            await peer.response()

    return upgrade


async def connects(peer: Peer) -> None:
    """Disconnect at once."""


ATTACKS = [
    Attack("slow head", slow_head, "header_timeout"),
    Attack("slow head of 60 KB", slow_large_head, "header_timeout"),
    Attack("slow body", slow_body, "body_timeout"),
    Attack("slow reader of large responses", slow_reader_of_large_responses, "unread_response", share=0.01),
    Attack("idle connections", idle, "idle"),
    Attack("idle after a request", idle_after_a_request, None, share=1.0),
    Attack("declared body, health check", declares_body(LIVEZ + b"Content-Length: 33554432\r\n\r\n"), "linger"),
    Attack("declared body, publish", declares_body(PUBLISH + b"Content-Length: 33554432\r\n\r\n"), "linger"),
    Attack("declared body, /mq", declares_body(b"POST /mq/send HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED), "linger"),
    Attack("more connections than the cap", idle_after_a_request, "evicted", is_flood=True, share=1.5),
    Attack("many large heads", slow_large_head, None, is_flood=True, share=1.0),
    Attack("slow reader of small responses", slow_reader, None, is_flood=True, share=0.05),
    Attack("connection churn", connects, None, is_flood=True, share=0.03),
    Attack("many small headers", floods(LIVEZ, b"a:\r\n" * 1_000, MIB), "headers_too_large", True, 0.03),
    Attack("one huge header", floods(LIVEZ + b"X-Huge: ", b"a" * 65_536, 8 * MIB), "headers_too_large", True, 0.03),
    Attack("huge request line", floods(b"GET /", b"a" * 65_536, 8 * MIB), "headers_too_large", True, 0.03),
    Attack(
        "32 MiB of headers", floods(LIVEZ, b"X-Large: aaaaaa\r\n" * 4_096, 32 * MIB), "headers_too_large", True, 0.03
    ),
    Attack("empty lines", floods(b"", b"\r\n" * 32_768, 8 * MIB), "headers_too_large", True, 0.03),
    Attack("pipelining flood", pipelines, None, True, 0.03),
    Attack("2,000 pipelined requests", pipelines_too_many, "malformed_request", True, 0.03),
    Attack("h2c upgrade, one segment", upgrades(is_split=False), None, True, 0.03),
    Attack("h2c upgrade, two segments", upgrades(is_split=True), None, True, 0.03),
    Attack("both lengths", sends(PUBLISH + b"Content-Length: 5\r\n" + CHUNKED), "malformed_request", True, 0.03),
    Attack("bad chunk", sends(PUBLISH + CHUNKED + b"zz\r\n"), "malformed_request", True, 0.03),
    Attack("huge chunk extension", floods(PUBLISH + CHUNKED + b"1;", b"a" * 65_536, 8 * MIB), None, True, 0.03),
    Attack("huge trailers", floods(PUBLISH + CHUNKED + b"0\r\nX-T: ", b"a" * 65_536, 8 * MIB), None, True, 0.03),
]
