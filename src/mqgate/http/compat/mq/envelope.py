"""Answers of the dialect: HTTP 200 whatever happened, the outcome in the body, null members left out."""

from typing import Any

import msgspec

from mqgate.core.errors import BadInput, MqgateError
from mqgate.http.exchange import Headers, Response

OK = 200
OK_WITHOUT_RESULT = 201
INVALID = 400
FAILED = 500
_HTTP_OK = 200
_HTTP_NOT_FOUND = 404
_JSON = b"application/json"
_encode = msgspec.json.Encoder().encode


class Refusal(Exception):
    """What the dialect itself refuses, with the status that its clients know."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def done(result: Any, cookie: bytes | None = None) -> Response:
    """The answer with a result; 201 where there is none to give."""
    headers: Headers = [] if cookie is None else [(b"set-cookie", cookie)]
    if result is None:
        return Response(_HTTP_OK, _encode({"status": OK_WITHOUT_RESULT}), _JSON, headers)
    return Response(_HTTP_OK, _encode({"status": OK, "result": result}), _JSON, headers)


def said(status: int, message: str | None = None) -> Response:
    """The answer without a result."""
    body: dict[str, object] = {"status": status}
    if message is not None:
        body["message"] = message
    return Response(_HTTP_OK, _encode(body), _JSON)


def failed(error: MqgateError) -> Response:
    """Our errors in the dialect's two classes: what the caller can mend, and everything else."""
    return said(INVALID if isinstance(error, BadInput) else FAILED, error.detail)


def not_there(path: str) -> Response:
    """An address that no handler has: the only answer whose HTTP status is not 200."""
    body = {"status": _HTTP_NOT_FOUND, "message": f"nothing at {path}"}
    return Response(_HTTP_NOT_FOUND, _encode(body), _JSON)
