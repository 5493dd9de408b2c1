"""How a call can fail, told apart by what it means for the caller.

RocketMQError
|-- NotSent     the server has not done it: no connection, no route, it is leaving; elsewhere or later is safe
|-- NoResponse    it was sent, and no answer came: it may have been done
|-- Refused     the server answered with an error code
|-- RemoteProtocolError   it sent what is no RocketMQ at all
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

# What reading an answer raises that lacks a member, or has another in its place.
DECODE_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError)


class RocketMQError(Exception):
    """Anything that goes wrong between us and a server."""


class NotSent(RocketMQError):
    pass


class NoResponse(RocketMQError):
    pass


class Refused(RocketMQError):
    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} answered {code}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address


class RemoteProtocolError(RocketMQError):
    pass


@contextlib.contextmanager
def decoding_response() -> Iterator[None]:
    """Read an answer's members: what lacks them, or has others in their place, is no RocketMQ."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise malformed_response(error) from error


def malformed_response(error: Exception) -> RemoteProtocolError:
    """The same for whoever catches DECODE_ERRORS itself: a context manager costs more than to read a small answer."""
    return RemoteProtocolError(f"an answer makes no sense: {error!r}")
