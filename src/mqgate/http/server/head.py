"""The head of a request: which ones are accepted, and the ASGI scope that describes it."""

import urllib.parse
from typing import Any

import httptools

from mqgate.core.errors import MalformedRequest

__all__ = ["Headers", "scope_of"]

Headers = list[tuple[bytes, bytes]]


def scope_of(method: str, target: bytes, version: str, headers: Headers) -> dict[str, Any]:
    """Return the scope, without the client and the scheme. Raise MalformedRequest for a head that RFC 9112 forbids.

    The parser has already refused malformed lines, and a body whose length is ambiguous.
    """
    if version not in {"1.0", "1.1"}:
        raise MalformedRequest("The supported versions are HTTP/1.0 and HTTP/1.1.")
    fields = dict(headers)
    _check_host(version, fields, headers)
    if b"transfer-encoding" in fields:
        _check_transfer_encoding(version, headers)
    try:
        url = httptools.parse_url(target)
        path = url.path.decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
        raise MalformedRequest("The request target is not a path.") from None
    if b"#" in target:
        raise MalformedRequest("The request target has a fragment. Encode # as %23.")
    if url.host is not None:
        # The authority of an absolute target replaces the Host header (RFC 9112, 3.2.2).
        headers = [(b"host", target.split(b"/", 3)[2]), *(pair for pair in headers if pair[0] != b"host")]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": method,
        "root_path": "",
        "path": urllib.parse.unquote(path) if "%" in path else path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": headers,
    }


def _check_host(version: str, fields: dict[bytes, bytes], headers: Headers) -> None:
    if b"host" not in fields:
        if version == "1.1":
            raise MalformedRequest("The Host header is missing.")
    elif len(fields) < len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        raise MalformedRequest("The Host header was sent more than once.")


def _check_transfer_encoding(version: str, headers: Headers) -> None:
    if any(value.strip().lower() != b"chunked" for name, value in headers if name == b"transfer-encoding"):
        raise MalformedRequest("The only Transfer-Encoding that is supported is chunked.")
    if version == "1.0":
        # A proxy that speaks HTTP/1.0 may have passed it on unread, so the end of the body is uncertain.
        raise MalformedRequest("HTTP/1.0 does not support Transfer-Encoding.")
