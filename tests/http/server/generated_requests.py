"""Bytes that clients send: valid, unusual, malformed and pipelined requests. The same seed yields the same bytes."""

import random

__all__ = ["generated"]

_METHODS = (*(b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH") * 3, b"FOO", b"get")
_TARGETS = (*(b"/", b"/a/b?c=d", b"/%41") * 6, b"*", b"h:80", b"/\xff", b"", b"/a b")
_VERSIONS = (*(b"HTTP/1.1",) * 12, b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ")
_HEADERS = (
    *(b"Host: h", b"Accept: */*", b"X-A:b", b"X-A:  b  ", b"X-A: \xff", b"X-A: a\tb", b"Expect: 100-continue"),
    *(b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade", b"Upgrade: h2c"),
    *(
        b"X-\xe9: a",
        b"X : a",
        b"X-A: a\x00b",
        b"X-A: a\x7f",
        b"X-A: a\x01",
        b" folded",
        b"NoColon",
        b": empty",
        b"X(: a",
    ),
)
_CHUNKED = b"Transfer-Encoding: chunked"
_BODIES: tuple[tuple[tuple[bytes, ...], bytes], ...] = (
    *(((), b""), ((b"Content-Length: 3",), b"abc"), ((_CHUNKED,), b"3\r\nabc\r\n0\r\n\r\n")) * 4,
    ((b"Content-Length: 0",), b""),
    ((_CHUNKED,), b"3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n"),
    ((b"Transfer-Encoding: Chunked",), b"1\r\na\r\n0\r\n\r\n"),
    ((b"Transfer-Encoding: gzip, chunked",), b"0\r\n\r\n"),
    ((b"Transfer-Encoding: gzip",), b""),
    ((b"Content-Length: 3", b"Content-Length: 3"), b"abc"),
    ((b"Content-Length: 3, 3",), b"abc"),
    ((b"Content-Length: 3", b"Content-Length: 4"), b"abcd"),
    *(((b"Content-Length: " + length,), b"a" * 10) for length in (b"+3", b"-1", b"", b"1_0", b"0x3")),
    ((b"Content-Length: 3", _CHUNKED), b"0\r\n\r\n"),
    *(
        ((_CHUNKED,), body)
        for body in (b"zz\r\n", b"3\r\nabcX\r\n0\r\n\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b"3\nabc\n0\n\n")
    ),
    ((_CHUNKED,), b"0x3\r\nabc\r\n0\r\n\r\n"),
)


def generated(seed: int) -> bytes:
    """Return one to three requests."""
    rng = random.Random(seed)
    return b"".join(_request(rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _request(rng: random.Random) -> bytes:
    headers = [b"Host: h"] if rng.random() < 0.9 else []
    headers += rng.sample(_HEADERS, rng.choice((0, 0, 0, 1, 2)))
    framing, body = rng.choice(_BODIES)
    headers += framing
    if rng.random() < 0.5:
        rng.shuffle(headers)
    end = b"\n" if rng.random() < 0.05 else b"\r\n"
    first = b" ".join((rng.choice(_METHODS), rng.choice(_TARGETS), rng.choice(_VERSIONS)))
    request = end.join((first, *headers, b"", body))
    return _damaged(rng, request) if rng.random() < 0.15 else request


def _damaged(rng: random.Random, request: bytes) -> bytes:
    """Replace, insert or remove one byte."""
    at = rng.randrange(len(request))
    byte = bytes([rng.randrange(256)])
    return request[:at] + rng.choice((byte + request[at + 1 :], byte + request[at:], request[at + 1 :]))
