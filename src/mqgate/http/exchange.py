"""One request and its answer, as thin as ASGI allows."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import parse_qsl

import msgspec

from mqgate.control.access.model import OPEN, Principal
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.http.errors import headers_of, problem

ReceiveEvent = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = list[tuple[bytes, bytes]]
_JSON = b"application/json"
_PROBLEM = b"application/problem+json"
_encode = msgspec.json.Encoder().encode


class Stream(Protocol):
    """A body that is made while it is sent. Closed in any case, also when nobody ever asked for a piece."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes | memoryview:
        """The next piece; whatever is raised but the end cuts the connection."""

    async def aclose(self) -> None:
        """Give back what the stream holds. Safe to call twice."""


class Response(NamedTuple):
    """`stream`, where there is one, is sent in place of `body`."""

    status: int
    body: bytes = b""
    content_type: bytes = _JSON
    headers: Headers = []  # noqa: RUF012 - never changed, copied when sent
    stream: Stream | None = None


class Request:
    """What a handler sees; the body is whole, the caller is known."""

    __slots__ = ("_receive", "body", "body_bytes", "headers", "principal", "request_id", "scope")

    def __init__(
        self, scope: Mapping[str, Any], headers: dict[bytes, bytes], request_id: str, receive: ReceiveEvent
    ) -> None:
        self.scope = scope
        self._receive = receive
        self.headers = headers
        self.request_id = request_id
        self.body = b""
        self.body_bytes = 0
        self.principal: Principal = OPEN

    def path(self, name: str) -> str:
        return str(self.scope["path_params"][name])

    def header(self, name: bytes) -> str | None:
        """A header as text; bytes that are not UTF-8 are refused."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidValue(f"header {name.decode()} must be UTF-8", field=name.decode()) from None

    def query(self) -> dict[str, str]:
        """The query's parameters; one given twice is refused."""
        raw = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise InvalidValue("the query string must be percent-encoded UTF-8", field="query") from None
        found = dict(pairs)
        if len(found) < len(pairs):
            raise InvalidValue("a query parameter was given twice", field="query")
        return found

    async def wait_disconnect(self) -> None:
        """Return when the client has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def is_disconnected(self) -> bool:
        """Whether the client is known to have hung up, without waiting: one step of asking, then asking no more."""
        while True:
            asking = self._receive().__await__()
            try:
                asking.send(None)
            except StopIteration as told:
                if told.value["type"] == "http.disconnect":
                    return True
            else:
                asking.close()
                return False

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""


def reply(status: int, content: Any, headers: Headers | None = None) -> Response:
    # Not by its fields' names: every request makes one.
    return tuple.__new__(Response, (status, _encode(content), _JSON, headers or [], None))


def refuse(error: MqgateError) -> Response:
    document = problem(error)
    status = document["status"]
    assert isinstance(status, int)  # noqa: S101 - for the type checker
    return Response(status, _encode(document), _PROBLEM, headers_of(error))
