"""The server reads requests as h11 does, except for the deviations that are listed here.

h11 follows RFC 9112 closely and is written in another way, so an error of one is not an error of the other. Where two
servers in a row read the same bytes differently, a client can smuggle a request past the first one.
"""

import os
import re
from typing import Any

import pytest
from h11_requests import FINAL, Streams, Verdict, by_h11
from raw_client import Served, post, read_body, respond, served

STREAMS = 1_500 * int(os.environ.get("EXAMPLES_TIMES", "1"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
_DETAIL = re.compile(rb'"detail":"((?:[^"\\]|\\.)*)"')

# What h11 accepts and this server refuses, by the text of the refusal. docs/explanation/security.md lists the reasons.
STRICTER = {
    "Duplicate Content-Length": "two lengths, also equal ones",
    "Invalid character in Content-Length": "a list of lengths, also of equal ones",
    "Transfer-Encoding can't be present with Content-Length": "two framings",
    "Content-Length can't be present with Transfer-Encoding": "two framings",
    "HTTP/1.0 does not support Transfer-Encoding": "chunks from a client of HTTP/1.0",
    "Invalid HTTP version": "versions other than 1.0 and 1.1",
    "The supported versions are HTTP/1.0 and HTTP/1.1": "versions other than 1.0 and 1.1",
    "Invalid method encountered": "methods that are not registered",
    "Expected space after method": "methods that are not registered",
    "Expected CRLF after version": "lines that end with LF alone",
    "Missing expected CR after header value": "lines that end with LF alone",
    "Unexpected whitespace after header value": "folded header lines",
    "Invalid header value char": "control characters in a value",
    "Invalid header field char": "a head that does not end before a line without a name",
    "Invalid character in chunk size": "spaces behind a chunk size",
    "Invalid character in chunk extensions": "a semicolon without an extension",
    "Invalid characters in url": "targets that are no path",
    "Unexpected start char in url": "targets that are no path",
    "Unexpected char in url": "targets that are no path",
    "Chunk size overflow": "chunk sizes of 2^64 and more",
    "The request target is not a path": "targets that are no path",
    "The request target has a fragment": "targets with a fragment",
}

VALID = {
    "length": post(b"abc", "/a") + FINAL,
    "chunks": b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-T: 1\r\n\r\n" + FINAL,
    "upgrade": post(b"abc", "/a", "Connection: Upgrade", "Upgrade: h2c") + FINAL,
    "absolute target": b"GET http://localhost/a?b=c HTTP/1.1\r\nHost: localhost\r\n\r\n" + FINAL,
    "http 1.0": b"POST /a HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc" + FINAL,
    "close": post(b"abc", "/a", "Connection: close") + FINAL,
    "pipeline": b"".join(post(b"%d" % number, f"/{number}") for number in range(4)) + FINAL,
}
MALFORMED = {
    "two framings": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + FINAL,
    "chunk size": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n" + FINAL,
    "no host": b"GET / HTTP/1.1\r\n\r\n" + FINAL,
    "second request": post(b"abc", "/a") + b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + FINAL,
}


class Recorder:
    """An application that notes the requests that it read completely."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(receive)
        if body is not None:
            query = b"?" + scope["query_string"] if scope["query_string"] else b""
            self.requests.append((scope["method"], (scope["raw_path"] + query).decode("latin-1"), body))
            await respond(send, b"")


async def by_us(server: Served, recorder: Recorder, *parts: bytes) -> tuple[Verdict, str]:
    """Return what the server reads from a stream that arrives in these parts, and the detail of a refusal."""
    recorder.requests = []
    client = await server.connect()
    await server.connections(1)
    (connection,) = server.server.connections
    for part in parts:
        # Directly, because the network may join parts.
        connection.data_received(part)
    client.half_close()
    responses = await client.rest()
    await server.connections(0)
    client.close()
    details = _DETAIL.findall(responses)
    return Verdict(recorder.requests, is_refused=bool(details)), details[-1].decode() if details else ""


def is_explained(ours: Verdict, detail: str, theirs: Verdict) -> bool:
    """Return whether both agree, or this server stopped earlier for a reason that is listed."""
    if ours == theirs:
        return True
    is_earlier = ours.is_refused and ours.requests == theirs.requests[: len(ours.requests)]
    return is_earlier and any(text in detail for text in STRICTER)


@pytest.mark.timeout(600)
async def test_generated_requests_are_read_as_h11_reads_them() -> None:
    """The same requests and bodies, or a refusal for a reason that is listed above."""
    recorder, streams = Recorder(), Streams(SEED)
    counts = {"same": 0, "refused": 0, "stricter": 0}
    async with served(recorder) as server:
        for _ in range(STREAMS):
            stream = streams.stream()

            theirs = by_h11(stream)
            ours, detail = await by_us(server, recorder, stream)

            assert is_explained(ours, detail, theirs), (stream, ours, detail, theirs)
            counts["same" if ours == theirs else "stricter"] += 1
            counts["refused"] += ours.is_refused

    # Neither kind may vanish from the generated streams unnoticed.
    assert min(counts.values()) > STREAMS / 50, counts


@pytest.mark.parametrize("name", [*VALID, *MALFORMED])
async def test_a_cut_at_any_byte_changes_nothing(name: str) -> None:
    """TCP may deliver the bytes in any parts."""
    stream = (VALID | MALFORMED)[name]
    recorder = Recorder()
    async with served(recorder) as server:
        whole, _ = await by_us(server, recorder, stream)
        bytewise, _ = await by_us(server, recorder, *(stream[at : at + 1] for at in range(len(stream))))
        halves = [(await by_us(server, recorder, stream[:at], stream[at:]))[0] for at in range(1, len(stream))]

    assert is_explained(whole, "", by_h11(stream)) or name == "two framings"
    assert whole.is_refused is (name in MALFORMED)
    assert bytewise == whole
    assert all(half == whole for half in halves)
