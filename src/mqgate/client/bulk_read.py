"""Messages of a queue as Arrow record batches, read while they arrive.

The HTTP client of the standard library reads the bytes, because httpx2 takes four times as long, more than all other
work of a reader. httpx2 is used where the standard library lacks support: for proxies, and for passwords in the URL.
"""

import http.client
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol, cast
from urllib.request import getproxies, proxy_bypass

import httpx2

from mqgate.client.caller import Caller
from mqgate.client.errors import GatewayUnreachable, Reply, refusal, unexpected
from mqgate.client.requests import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mqgate.client.transport import BlockingTransport

__all__ = ["ARROW", "batches"]

ARROW = "application/vnd.apache.arrow.stream"
_END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_PORTS = {"http": 80, "https": 443}


def batches(caller: Caller, call: Call) -> "Iterator[pa.RecordBatch]":
    """Yield the batches of a response as they arrive. Closing the iterator closes the connection.

    Raise GatewayError for a refusal, and GatewayUnreachable for an incomplete response.
    """
    # The import is slow, and only bulk reads need it.
    import pyarrow as pa  # noqa: PLC0415 - see above

    client = cast("BlockingTransport", caller.transport).http
    headers = {**caller.headers, "Accept": ARROW}
    request = client.build_request(
        "GET", caller.address + call.path, params=call.parameters, headers=headers, timeout=caller.timeout
    )
    response = _direct(request) if _is_direct(request.url) else _through_proxy(client, request)
    try:
        with response as body:
            tail = _TailReader(body)
            with pa.ipc.open_stream(pa.PythonFile(tail, "r")) as reader:
                yield from reader
            # Arrow also accepts a stream that ends without the mark.
            if tail.last != _END_MARK or tail.read(1):
                raise GatewayUnreachable("the stream ended without its end mark", is_outcome_unknown=False)
    except (pa.ArrowException, OSError, http.client.HTTPException, httpx2.RequestError) as error:
        reason = str(error) or type(error).__name__
        raise GatewayUnreachable(
            f"incomplete response from {caller.address}: {reason}", is_outcome_unknown=False
        ) from error


class _Body(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or fewer at the end."""


@contextmanager
def _direct(request: httpx2.Request) -> "Iterator[_Body]":
    url = request.url
    port = url.port or _PORTS[url.scheme]
    timeout = request.extensions["timeout"]["read"]
    connection = (
        http.client.HTTPSConnection(url.host, port, timeout=timeout, context=httpx2.create_ssl_context())
        if url.scheme == "https"
        else http.client.HTTPConnection(url.host, port, timeout=timeout)
    )
    with closing(connection):
        headers = {
            name: value for name, value in request.headers.items() if name not in {"accept-encoding", "connection"}
        }
        connection.request("GET", url.raw_path.decode(), headers=headers)
        response = connection.getresponse()
        if response.status != http.client.OK or response.headers.get("Content-Type") != ARROW:
            lower = {name.lower(): value for name, value in response.headers.items()}
            raise _error(Reply(url=str(url), status=response.status, headers=lower, content=response.read()))
        yield response


@contextmanager
def _through_proxy(client: httpx2.Client, request: httpx2.Request) -> "Iterator[_Body]":
    with closing(client.send(request, stream=True)) as response:
        if response.status_code != http.client.OK or response.headers.get("Content-Type") != ARROW:
            headers = dict(response.headers)
            raise _error(
                Reply(url=str(request.url), status=response.status_code, headers=headers, content=response.read())
            )
        yield _Pieces(response.iter_raw())


def _error(reply: Reply) -> Exception:
    return unexpected(reply, ARROW) if reply.is_success else refusal(reply)


def _is_direct(url: httpx2.URL) -> bool:
    proxies = getproxies()
    is_proxied = (url.scheme in proxies or "all" in proxies) and not proxy_bypass(url.host)
    return not is_proxied and not url.userinfo


class _Pieces:
    """Pieces of any size as a file that is read sequentially."""

    def __init__(self, pieces: "Iterator[bytes]") -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        found: list[memoryview] = []
        while size > 0:
            self._rest = self._rest or memoryview(next(self._pieces, b""))
            if not self._rest:
                break
            part, self._rest = self._rest[:size], self._rest[size:]
            found.append(part)
            size -= len(part)
        return b"".join(found)


class _TailReader:
    """A response body that keeps the last bytes that were read."""

    closed = False

    def __init__(self, body: _Body) -> None:
        self._body = body
        self.last = b""

    def read(self, size: int, /) -> bytes:
        found = self._body.read(size)
        self.last = (self.last + found[-len(_END_MARK) :])[-len(_END_MARK) :]
        return found
