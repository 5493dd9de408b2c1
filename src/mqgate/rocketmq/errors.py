"""Errors of the client, separated by what the caller may conclude.

RocketMQError
|-- NotSent              the server did not execute the request (no connection, no route, shutdown): retrying is safe
|-- NoResponse           the request was sent and no response arrived: it may have been executed
|-- Refused              the server responded with an error code
|-- RemoteProtocolError  the server sent bytes that violate the protocol
"""

import contextlib
from collections.abc import Iterator

__all__ = [
    "DECODE_ERRORS",
    "NoResponse",
    "NotSent",
    "Refused",
    "RemoteProtocolError",
    "RocketMQError",
    "decoding_response",
    "malformed_response",
]

# Raised when a response lacks a member, or when a member has another type.
DECODE_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError)


class RocketMQError(Exception):
    """The base of all errors of the client."""


class NotSent(RocketMQError):
    pass


class NoResponse(RocketMQError):
    pass


class Refused(RocketMQError):
    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} responded with code {code}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address


class RemoteProtocolError(RocketMQError):
    pass


@contextlib.contextmanager
def decoding_response() -> Iterator[None]:
    """Raise RemoteProtocolError if the response that is read in the block is malformed."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise malformed_response(error) from error


def malformed_response(error: Exception) -> RemoteProtocolError:
    """Return the error to raise for one of DECODE_ERRORS. Hot paths use it: a context manager is slower."""
    return RemoteProtocolError(f"malformed response: {error!r}")
