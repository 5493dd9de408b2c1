"""Request ids: the X-Request-Id of the client if it is well formed, otherwise a new id."""

import itertools
import os
import re
from collections.abc import Mapping

__all__ = ["new_request_id", "request_id_of"]

_WELL_FORMED = re.compile(rb"[A-Za-z0-9._:+/=-]{1,128}")
# The prefix is unique per process, the number within the process.
_PREFIX = os.urandom(4).hex()
_numbers = itertools.count()


def new_request_id() -> str:
    return f"{_PREFIX}{next(_numbers):08x}"


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id")
    if given is not None and _WELL_FORMED.fullmatch(given):
        return given.decode()
    return new_request_id()
