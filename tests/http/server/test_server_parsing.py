"""HTTP/1.1 on the wire: framing, pipelining, upgrades that are ignored."""

import json
from typing import Any

import pytest
from raw_client import echo, get, post, read_body, respond, served

CHUNKED = b"POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")


@pytest.mark.parametrize("is_split", [False, True], ids=["one segment", "two segments"])
async def test_an_upgrade_is_ignored_and_the_body_is_read(is_split: bool) -> None:
    """The JDK's client asks for h2c by default: its publish lost its body, and the body was parsed as a request."""
    async with served(echo) as server:
        client = await server.connect()
        request = post(b'{"max": 1}', "/receive", *UPGRADE)

        if is_split:
            await client.send(request[:-10])
            await server.connections(1)
            response = await client.exchange(request[-10:])
        else:
            response = await client.exchange(request)

        assert response.body == b'POST /receive {"max": 1}'
        assert (await client.exchange(get("/next"))).body == b"GET /next "


async def test_an_upgrade_is_ignored_at_every_cut() -> None:
    """Wherever the bytes are cut, the body and the request behind it are the same."""
    request = post(b"hello", "/a", *UPGRADE) + get("/b")
    async with served(echo) as server:
        for cut in range(1, len(request)):
            client = await server.connect()
            await client.send(request[:cut])
            await client.send(request[cut:])

            bodies = [(await client.response()).body for _ in range(2)]

            assert bodies == [b"POST /a hello", b"GET /b "], cut
            client.close()


async def test_a_chunked_body_is_read_despite_an_upgrade() -> None:
    """The framing headers count, whichever they are."""
    async with served(echo) as server:
        client = await server.connect()
        head = CHUNKED[:-2] + "".join(f"{line}\r\n" for line in UPGRADE).encode() + b"\r\n"

        response = await client.exchange(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

        assert response.body == b"POST /c abcde"


async def test_upgrades_in_one_segment_are_all_ignored() -> None:
    """Each of them needs a parser of its own."""
    async with served(echo) as server:
        client = await server.connect()
        requests = [post(b"%d" % number, "/u", *UPGRADE) for number in range(90)]

        await client.send(b"".join(requests))
        bodies = [(await client.response()).body for _ in requests]

        assert bodies == [b"POST /u %d" % number for number in range(90)]


async def test_an_absolute_target_decides_the_host() -> None:
    """A proxy in front may have decided by it (RFC 9112, 3.2.2)."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        await respond(send, b" ".join(hosts) + b" " + scope["path"].encode())

    async with served(app) as server:
        client = await server.connect()

        response = await client.exchange(b"GET http://evil:80/path HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert response.body == b"evil:80 /path"


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"GET / HTTP/1.1\nHost: localhost\n\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        CHUNKED + b"3\nabc\n0\n\n",
        CHUNKED + b"3;a=b\nabc\r\n0\r\n\r\n",
    ],
)
async def test_ambiguous_framing_is_refused(request_: bytes) -> None:
    """Two readers that disagree on where a request ends let one client speak in the name of another."""
    async with served(echo) as server:
        client = await server.connect()

        response = await client.exchange(request_)

        assert response.status == 400
        assert json.loads(response.body)["code"] == "malformed_request"
        assert response.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Also with a malformed one behind them, whose refusal comes last."""
    async with served(echo) as server:
        client = await server.connect()

        await client.send(post(b"one", "/1") + get("/2") + post(b"three", "/3") + b"NONSENSE\r\n\r\n")
        responses = [await client.response() for _ in range(4)]

        assert [response.body for response in responses[:3]] == [b"POST /1 one", b"GET /2 ", b"POST /3 three"]
        assert responses[3].status == 400


async def test_a_malformed_body_behind_a_pipelined_request_is_refused_in_turn() -> None:
    """The request that it belongs to never reaches the application."""
    async with served(echo) as server:
        client = await server.connect()

        await client.send(get("/1") + CHUNKED + b"zz\r\n")
        responses = [await client.response() for _ in range(2)]

        assert [response.status for response in responses] == [200, 400]
        assert await client.rest() == b""


async def test_a_body_is_asked_for_when_it_is_wanted() -> None:
    """Clients that send Expect: 100-continue wait for it; one that is refused need not send its body."""
    async with served(echo) as server:
        client = await server.connect()
        await client.send(post(b"abc", "/", "Expect: 100-continue")[:-3])

        interim = await client._reader.readuntil(b"\r\n\r\n")
        response = await client.exchange(b"abc")

        assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert response.body == b"POST / abc"


async def test_a_body_is_not_asked_for_after_the_response() -> None:
    """The client would take it for the response to its next request."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"no", 401)
        await receive()

    async with served(app) as server:
        client = await server.connect()
        await client.send(post(b"abc", "/", "Expect: 100-continue")[:-3])

        received = await client.rest()

        assert received.startswith(b"HTTP/1.1 401 ")
        assert b"100 Continue" not in received


async def test_an_http_1_0_client_gets_its_response_and_the_end() -> None:
    """Old health checkers still speak it, some without Host."""
    async with served(echo) as server:
        client = await server.connect()

        response = await client.exchange(b"GET /old HTTP/1.0\r\n\r\n")

        assert response.body == b"GET /old "
        assert await client.rest() == b""


async def test_the_response_to_head_has_no_body() -> None:
    """Its length is that of the GET, and the next request is understood."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await respond(send, b"12345")

    async with served(app) as server:
        client = await server.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await client._reader.readuntil(b"\r\n\r\n")

        assert b"content-length: 5\r\n" in head
        assert (await client.exchange(get())).body == b"12345"


@pytest.mark.parametrize(("version", "body"), [(b"1.1", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), (b"1.0", b"abcde")])
async def test_a_streamed_response_is_framed_for_the_client(version: bytes, body: bytes) -> None:
    """In chunks; HTTP/1.0 knows none, so there the end of the connection is the end of the body."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await send({"type": "http.response.body", "body": memoryview(b"de"), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with served(app) as server:
        client = await server.connect()
        await client.send(b"GET / HTTP/%b\r\nHost: localhost\r\nConnection: close\r\n\r\n" % version)

        _, _, received = (await client.rest()).partition(b"\r\n\r\n")

        assert received == body


async def test_an_application_that_fails_halfway_closes_the_connection() -> None:
    """Nobody may take the part for the whole."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        raise RuntimeError("broken")

    async with served(app) as server:
        client = await server.connect()
        await client.send(get())

        received = await client.rest()

        assert not received.endswith(b"0\r\n\r\n")
        assert server.closed == ["unfinished"]
