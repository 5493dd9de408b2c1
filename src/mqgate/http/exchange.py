"""One HTTP request and its response, as a thin layer over ASGI."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import parse_qsl

import msgspec

from mqgate.control.access.model import OPEN, Principal
from mqgate.control.access.permissions import Grant
from mqgate.core.errors import InvalidValue, MqgateError
from mqgate.http.errors import headers_of, problem

ReceiveEvent = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = list[tuple[bytes, bytes]]
_JSON = b"application/json"
_PROBLEM = b"application/problem+json"
_encode = msgspec.json.Encoder().encode


class Stream(Protocol):
    """A response body that is produced while it is sent. It is always closed, even if no piece was read."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes | memoryview:
        """Return the next piece. Any exception except the end of the iteration closes the connection."""

    async def aclose(self) -> None:
        """Release the resources of the stream. Safe to call twice."""


class Response(NamedTuple):
    """A response. `stream`, if present, is sent instead of `body`."""

    status: int
    body: bytes = b""
    content_type: bytes = _JSON
    headers: Headers = []  # noqa: RUF012 - never mutated
    stream: Stream | None = None


class Direct(Protocol):
    """What the own server offers beside ASGI, under "mqgate.direct" of the scope.

    The same could be done by events of ASGI, at several times the cost.
    """

    def has_disconnected(self) -> bool:
        """Return whether the client has disconnected, without waiting."""

    def respond(self, response: Response, request_id: str) -> bool:
        """Write a complete response at once. Return False if the client has to read earlier ones first."""


class Request:
    """A request as handlers see it: the body is complete and the caller is authenticated."""

    __slots__ = (
        "_direct",
        "_receive",
        "body",
        "body_bytes",
        "grant",
        "headers",
        "log_fields",
        "principal",
        "request_id",
        "scope",
    )

    def __init__(
        self, scope: Mapping[str, Any], headers: dict[bytes, bytes], request_id: str, receive: ReceiveEvent
    ) -> None:
        self.scope = scope
        self._direct: Direct | None = scope.get("mqgate.direct")
        self._receive = receive
        self.headers = headers
        self.request_id = request_id
        # Handlers add the topic and the group that are not in the path.
        self.log_fields: dict[str, str] = {"request_id": request_id, **scope.get("path_params", {})}
        self.body = b""
        self.body_bytes = 0
        self.principal: Principal = OPEN
        self.grant = Grant.ALL

    def path(self, name: str) -> str:
        return str(self.scope["path_params"][name])

    def header(self, name: bytes) -> str | None:
        """Return a header as text. Raise InvalidValue if it is not UTF-8."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidValue(f"Header {name.decode()} must be UTF-8.", field=name.decode()) from None

    def query(self) -> dict[str, str]:
        """Return the query parameters. Raise InvalidValue if one is repeated."""
        raw = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise InvalidValue("The query string must be percent-encoded UTF-8.", field="query") from None
        parameters = dict(pairs)
        if len(parameters) < len(pairs):
            raise InvalidValue("A query parameter was sent more than once. Send it once.", field="query")
        return parameters

    async def wait_disconnect(self) -> None:
        """Wait until the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def is_disconnected(self) -> bool:
        """Return whether the client has disconnected, without waiting.

        With ASGI alone, run one step of `receive` and close it.
        """
        if self._direct is not None:
            return self._direct.has_disconnected()
        while True:
            receiving = self._receive().__await__()
            try:
                receiving.send(None)
            except StopIteration as received:
                if received.value["type"] == "http.disconnect":
                    return True
            else:
                receiving.close()
                return False

    def respond(self, response: Response) -> bool:
        """Write a complete response at once. Return False if it has to be sent by events."""
        return self._direct is not None and self._direct.respond(response, self.request_id)

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""


def reply(status: int, content: Any, headers: Headers | None = None) -> Response:
    """Return a JSON response."""
    # Faster than keyword arguments; every request creates one.
    return tuple.__new__(Response, (status, _encode(content), _JSON, headers or [], None))


def refuse(error: MqgateError) -> Response:
    """Return the problem document of an error as a response."""
    document = problem(error)
    status = document["status"]
    assert isinstance(status, int)  # noqa: S101 - for the type checker
    return Response(status, _encode(document), _PROBLEM, headers_of(error))
