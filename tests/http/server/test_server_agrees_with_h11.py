"""The server reads requests like h11, an independent implementation, and rejects more where that is safer.

A server and the proxy before it that read the same bytes differently can be made to mix up the requests of different
clients. So every difference is listed here.
"""

import re

import pytest
from generated_requests import generated
from in_memory import of_h11, of_server

_START = rb"(?:^|\n)"
# What our server rejects although h11 accepts it: a pattern, and an example.
STRICTER = {
    "a line ends without a carriage return": (rb"(?<!\r)\n", b"GET / HTTP/1.1\nHost: h\n\n"),
    "a header continues on the next line": (rb"\n[ \t]", b"GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\n c\r\n\r\n"),
    "the method is unknown": (
        _START + rb"(?!(?:GET|POST|HEAD|PUT|DELETE|OPTIONS|PATCH) )[!-~]+ [!-~]+ HTTP/",
        b"FOO / HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    "the version is neither 1.0 nor 1.1": (rb"HTTP/(?!1\.[01]\r?\n)", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
    "the target is not a path": (_START + rb"[A-Z]+ [^/ \n][^ \n]* HTTP", b"GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n"),
    "the length is repeated": (
        rb"(?is)content-length:.*content-length:|content-length:[^\r\n]*,",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    ),
    "both a length and chunks are announced": (
        rb"(?is)content-length:.*transfer-encoding:|transfer-encoding:.*content-length:",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "HTTP/1.0 with chunks": (
        rb"(?is)HTTP/1\.0.*transfer-encoding:",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "a space follows the size of a chunk": (
        rb"\n[0-9A-Fa-f]+[ \t]",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    ),
    "a value contains a control character": (
        rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]",
        b"GET / HTTP/1.1\r\nHost: h\r\nX-A: \x01\r\n\r\n",
    ),
}
EMPTY_LINE = re.compile(rb"(?:^|\r\n\r\n)\r\n")


@pytest.mark.parametrize("reason", STRICTER)
async def test_every_listed_difference_exists(reason: str) -> None:
    """A list with outdated entries would hide new differences."""
    pattern, example = STRICTER[reason]

    assert re.search(pattern, example)
    assert not of_h11([example]).is_rejected
    assert (await of_server([example])).is_rejected


@pytest.mark.parametrize("start", range(0, 2_000, 250))
async def test_generated_requests_have_the_verdict_of_h11(start: int) -> None:
    """The same requests with the same bodies reach the application, and the same bytes are rejected."""
    unexplained = []
    for seed in range(start, start + 250):
        data = generated(seed)
        theirs, ours = of_h11([data]), await of_server([data])
        is_stricter = ours.is_rejected and ours.requests == theirs.requests[: len(ours.requests)]
        is_listed = is_stricter and any(re.search(pattern, data) for pattern, _ in STRICTER.values())
        # We reject a head at its first malformed byte, h11 when the head is complete.
        is_early = is_stricter and of_h11([data, b"\r\n\r\n"]).is_rejected
        # RFC 9112, 2.2 asks servers to ignore an empty line before a request. h11 does not.
        if ours != theirs and not is_listed and not is_early and not EMPTY_LINE.search(data):
            unexplained.append((seed, data, theirs, ours))

    assert not unexplained


@pytest.mark.parametrize("seed", range(0, 2_000, 67))
async def test_the_verdict_does_not_depend_on_where_the_bytes_are_cut(seed: int) -> None:
    """The network delivers requests in parts of any size."""
    data = generated(seed)
    whole = await of_server([data])

    for cut in range(1, len(data)):
        assert await of_server([data[:cut], data[cut:]]) == whole, cut


@pytest.mark.parametrize("seed", range(0, 2_000, 67))
async def test_a_truncated_request_is_not_served(seed: int) -> None:
    """Only complete requests reach the application."""
    data = generated(seed)
    whole = await of_server([data])

    for end in range(1, len(data)):
        part = await of_server([data[:end]])
        assert part.requests == whole.requests[: len(part.requests)]
        assert whole.is_rejected or not part.is_rejected


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_ambiguous_heads_are_rejected(head: bytes) -> None:
    """A missing or repeated Host, and any encoding but chunks, can be read in two ways."""
    verdict = await of_server([head])

    assert verdict.is_rejected
    assert verdict.requests == []
