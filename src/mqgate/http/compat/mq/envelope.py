"""Responses of the dialect: always HTTP 200, with the outcome in the body and without null members."""

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
    """An error of the dialect itself, with a status that its clients expect."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def result_response(result: Any, cookie: bytes | None = None) -> Response:
    """Return a response with a result, or status 201 if the result is None."""
    headers: Headers = [] if cookie is None else [(b"set-cookie", cookie)]
    if result is None:
        return Response(_HTTP_OK, _encode({"status": OK_WITHOUT_RESULT}), _JSON, headers)
    return Response(_HTTP_OK, _encode({"status": OK, "result": result}), _JSON, headers)


def status_response(status: int, message: str | None = None) -> Response:
    """Return a response without a result."""
    body: dict[str, object] = {"status": status}
    if message is not None:
        body["message"] = message
    return Response(_HTTP_OK, _encode(body), _JSON)


def error_response(error: MqgateError) -> Response:
    """Return an error in one of the two classes of the dialect: invalid input, and everything else."""
    return status_response(INVALID if isinstance(error, BadInput) else FAILED, error.detail)


def not_found_response(path: str) -> Response:
    """Return the response for an unknown path: the only one whose HTTP status is not 200."""
    body = {"status": _HTTP_NOT_FOUND, "message": f"no route for {path}"}
    return Response(_HTTP_NOT_FOUND, _encode(body), _JSON)
