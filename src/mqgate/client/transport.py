"""One request, one answer: where HTTP ends and dicts begin."""

import json
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from mqgate.client.bulk_read import ARROW, batches
from mqgate.client.errors import GatewayUnreachable, refusal, unexpected

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Duration", "Instant", "Json", "Transport", "given", "path", "wire"]

Json = dict[str, Any]
Duration = timedelta | str | float
Instant = datetime | str | int
_NO_WAIT = timedelta(0)


def path(*segments: str) -> str:
    """The address of something under `/v1`; every segment stays one segment, whatever is in it."""
    if not all(segments):
        raise ValueError("a name must not be empty")
    # A bare ".." would be resolved before it is sent, and address the parent.
    return "/v1/" + "/".join(quote(segment, safe="").replace(".", "%2E") for segment in segments)


def given(**members: Any) -> Json:
    """The members that have a value; null on the wire would say more than absence."""
    return {name: value for name, value in members.items() if value is not None}


class Transport:
    """A gateway's address, our key, and the connections to it."""

    def __init__(self, url: str, key: str | None, timeout: timedelta) -> None:
        _check_url(url)
        # An illegal header would be quoted in the error of the HTTP library, and with it the key.
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise ValueError("the key must be printable ASCII: it was perhaps cut or copied with its line end")
        self.url = url
        self._authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout = timeout.total_seconds()
        self._http = httpx.Client(base_url=url, headers={"User-Agent": "mqgate-client"}, verify=_trust(url))

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> Json:
        """Send JSON and return the JSON answered, empty if there is none; a refusal raises GatewayError."""
        headers = {"Content-Type": "application/json"}
        content = None if body is None else _encode(body)
        return self.answer(method, path, content=content, headers=headers if content else {}, **options)

    def answer(self, method: str, path: str, **options: Any) -> Json:
        """Send bytes as they are and return the JSON answered; a refusal raises GatewayError."""
        response = self.send(method, path, **options)
        if not response.is_success:
            raise refusal(response)
        return _decode(response)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        wait: timedelta = _NO_WAIT,
        is_anonymous: bool = False,
    ) -> httpx.Response:
        """Send one request and return whatever is answered; silence raises GatewayUnreachable."""
        try:
            return self._http.request(
                method,
                path,
                params=_parameters(query),
                content=content,
                headers=_headers({} if is_anonymous else self._authorization, headers or {}),
                timeout=httpx.Timeout(self._timeout, read=self._timeout + wait.total_seconds()),
            )
        except httpx.RequestError as error:
            is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            reason = str(error) or type(error).__name__
            raise GatewayUnreachable(
                f"no answer from {self.url}: {reason}", is_outcome_unknown=not is_unsent
            ) from error

    def batches(self, path: str, query: Mapping[str, Any]) -> "Iterator[pa.RecordBatch]":
        """Ask for a stream of Arrow and return its batches while they arrive."""
        headers = _headers(self._authorization, {"Accept": ARROW})
        return batches(
            self._http,
            self._http.build_request("GET", path, params=_parameters(query), headers=headers, timeout=self._timeout),
        )


def _parameters(query: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: wire(value) for name, value in (query or {}).items() if value is not None}


def _check_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"{url!r} is not the URL of a gateway: it looks like http://127.0.0.1:8080")


def _trust(url: str) -> ssl.SSLContext | bool:
    """Whose certificates count: the usual authorities'; nobody's where none is ever shown.

    To read the authorities takes 30 ms, and over plain HTTP would be for nothing, in each task of Spark.
    """
    return True if httpx.URL(url).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _headers(*parts: Mapping[str, str | bytes]) -> list[tuple[bytes, bytes]]:
    # As bytes, because the HTTP library takes text for ASCII; a gateway reads headers as UTF-8.
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for part in parts
        for name, value in part.items()
    ]


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, default=wire, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def wire(value: Any) -> Any:
    """A value as the API writes it, where JSON has no form of its own."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no form on the wire")


def _decode(response: httpx.Response) -> Json:
    if not response.content:
        return {}
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    raise unexpected(response, "a JSON object")
