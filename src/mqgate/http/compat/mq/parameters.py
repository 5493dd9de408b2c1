"""Parameters of the dialect, read as text from the query string and from a form body.

As in the original, a JSON body sets no parameters and unknown parameters are ignored. A known parameter that is
repeated is refused, because one of its values would be lost silently.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from mqgate.core.errors import InvalidValue
from mqgate.http.exchange import Request

_KNOWN = {
    *("producer", "message", "keys", "delayLevel", "asyncRetryTimesIfSendFailed", "orderId", "ordered"),
    *("deliveryTimestamp", "pullTimeout"),
    *("topic", "consumer", "requestId", "clientId", "useCookie", "clientIp"),
}
# The characters that Java's String.trim removes: fewer than Python's. orderId is hashed after trimming.
_BLANKS = "".join(map(chr, range(0x21)))
_MAX_FIELDS = 100
_DECODED_BYTES_PER_STEP = 64 << 10
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}")
_FLAGS = {"": False, "true": True, "on": True, "yes": True, "1": True}
_FLAGS |= {"false": False, "off": False, "no": False, "0": False}


class Parameters:
    """The parameters of a request. A blank value counts as missing."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        return value if value is not None and trimmed(value) else None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise InvalidValue(f"{name} must not be blank", field=name)
        return value

    def number(self, name: str, low: int, high: int) -> int | None:
        value = trimmed(self._given.get(name, ""))
        if not value:
            return None
        if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise InvalidValue(f"{name} must be a whole number from {low} to {high}", field=name)
        return int(value)

    def flag(self, name: str) -> bool:
        value = trimmed(self._given.get(name, "")).lower()
        if value not in _FLAGS:
            raise InvalidValue(f"{name} must be true or false", field=name)
        return _FLAGS[value]


async def read_parameters(request: Request) -> Parameters:
    """Return the parameters of a request, from its query string and its form."""
    pairs = await _pairs(request.scope["query_string"], "the query string")
    if request.body:
        kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"application/x-www-form-urlencoded":
            pairs += await _pairs(request.body, "the form")
        elif kind == b"multipart/form-data":
            pairs += await _multipart(request)
    given = dict(pairs)
    if len(given) < len(pairs):
        _reject_repeated(pairs)
    return Parameters(given)


def trimmed(text: str) -> str:
    return text.strip(_BLANKS)


async def _pairs(raw: bytes, where: str) -> list[tuple[str, str]]:
    try:
        raw.decode()
        if raw.count(b"&") < _MAX_FIELDS:
            fields = (field.partition(b"=") for field in raw.split(b"&") if field)
            return [(await _unquoted(name), await _unquoted(value)) for name, _, value in fields]
    except UnicodeDecodeError:
        pass
    raise InvalidValue(f"{where} must be percent-encoded UTF-8 of at most {_MAX_FIELDS} parameters")


async def _unquoted(text: bytes) -> str:
    """Decode percent-encoding. A text of megabytes takes seconds, so other requests run between its parts."""
    parts = []
    start = 0
    while start < len(text):
        end = start + _DECODED_BYTES_PER_STEP
        # An escape such as %41 is not cut.
        escape = text.find(b"%", end - 2, end)
        end = end if escape < 0 else escape
        parts.append(unquote_to_bytes(text[start:end].replace(b"+", b" ")))
        start = end
        if start < len(text):
            await asyncio.sleep(0)
    return b"".join(parts).decode()


async def _multipart(request: Request) -> list[tuple[str, str]]:
    async def body() -> AsyncGenerator[bytes, None]:
        yield request.body

    try:
        # The parser would decode invalid UTF-8 as Latin-1, which changes the text.
        request.body.decode()
        form = await MultiPartParser(
            Headers(raw=request.scope["headers"]),
            body(),
            max_files=0,
            max_fields=_MAX_FIELDS,
            max_part_size=len(request.body),
        ).parse()
        pairs = [(name, str(value)) for name, value in form.multi_items()]
        for _, value in pairs:
            # Another charset of a part can produce text that UTF-8 cannot encode.
            value.encode()
    except (UnicodeError, MultiPartException, FormParserError) as error:
        raise InvalidValue(
            f"the form must be multipart of at most {_MAX_FIELDS} UTF-8 fields and no file: {error}"
        ) from None
    return pairs


def _reject_repeated(pairs: list[tuple[str, str]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen and name in _KNOWN:
            raise InvalidValue(f"{name} was sent more than once. Send it once.", field=name)
        seen.add(name)
