"""HTTP requests and responses, converted from and to dicts."""

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
    """Return a path under `/v1`, with every segment encoded so that it remains one segment."""
    if not all(segments):
        raise ValueError("a name must not be empty")
    # An unencoded ".." would be resolved before it is sent.
    return "/v1/" + "/".join(quote(segment, safe="").replace(".", "%2E") for segment in segments)


def given(**members: Any) -> Json:
    """Return the members that are not None, because null has a meaning of its own in the API."""
    return {name: value for name, value in members.items() if value is not None}


class Transport:
    """URL of a gateway, API key and connection pool."""

    def __init__(self, url: str, key: str | None, timeout: timedelta) -> None:
        _check_url(url)
        # The HTTP library would quote an illegal header, and with it the key, in its error.
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise ValueError("the key must be printable ASCII; check for a truncated key or a line end")
        self.url = url
        self._authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout = timeout.total_seconds()
        self._http = httpx.Client(base_url=url, headers={"User-Agent": "mqgate-client"}, verify=_verification(url))

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> Json:
        """Send JSON and return the JSON of the response, or {} if it is empty. Raise GatewayError for a refusal."""
        headers = {"Content-Type": "application/json"}
        content = None if body is None else _encode(body)
        return self.call_raw(method, path, content=content, headers=headers if content else {}, **options)

    def call_new(self, method: str, path: str, body: Mapping[str, Any]) -> Json:
        """Send JSON that creates an entry. An existing entry is refused and stays unchanged."""
        headers = {"Content-Type": "application/json", "If-None-Match": "*"}
        return self.call_raw(method, path, content=_encode(body), headers=headers)

    def call_raw(self, method: str, path: str, **options: Any) -> Json:
        """Send bytes and return the JSON of the response. Raise GatewayError for a refusal."""
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
        """Send one request and return any response. Raise GatewayUnreachable if there is none."""
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
                f"no response from {self.url}: {reason}", is_outcome_unknown=not is_unsent
            ) from error

    def batches(self, path: str, query: Mapping[str, Any]) -> "Iterator[pa.RecordBatch]":
        """Request a stream of Arrow and return an iterator over its batches."""
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
        raise ValueError(f"{url!r} is not the URL of a gateway, such as http://127.0.0.1:8080")


def _verification(url: str) -> ssl.SSLContext | bool:
    """Return the certificate verification: the default authorities for https, an empty context for http.

    Loading the authorities takes 30 ms in every Spark task, and plain HTTP does not need them.
    """
    return True if httpx.URL(url).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _headers(*parts: Mapping[str, str | bytes]) -> list[tuple[bytes, bytes]]:
    # As bytes, because the HTTP library encodes text as ASCII; a gateway reads headers as UTF-8.
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for part in parts
        for name, value in part.items()
    ]


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, default=wire, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def wire(value: Any) -> Any:
    """Return a value in its API form, if JSON has no type for it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def _decode(response: httpx.Response) -> Json:
    if not response.content:
        return {}
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    raise unexpected(response, "a JSON object")
