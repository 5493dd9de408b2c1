"""Splits a batch in which an item is nested too deeply for the JSON decoder, so that only that item fails.

The decoder is recursive and gives up on the whole request. This scanner counts brackets instead. It is slow, so it runs
in a thread, and only for requests of at most 1 MiB. A larger request is refused as a whole.
"""

import asyncio
import re

from mqgate.core.errors import InvalidJson
from mqgate.http.json_input import ItemSplitter, is_too_deep

__all__ = ["split_deep_batch"]

_MAX_BYTES = 1 << 20
_BEGIN = re.compile(rb'[ \t\r\n]*+\{[ \t\r\n]*+"messages"[ \t\r\n]*+:[ \t\r\n]*+\[')
_END = re.compile(rb"[ \t\r\n]*+\}[ \t\r\n]*+")
# Possessive quantifiers: the pattern never backtracks.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)


async def split_deep_batch(body: bytes, error: InvalidJson, splitter: ItemSplitter) -> list[bytes]:
    """Return the text of each item of `{"messages": [...]}`; raise `error` if the body is anything else."""
    if not is_too_deep(error) or len(body) > _MAX_BYTES:
        raise error
    items = await asyncio.to_thread(_split, body)
    if items is None:
        raise error
    return splitter.checked(items)


def _split(body: bytes) -> list[bytes] | None:
    begin = _BEGIN.match(body)
    if begin is None:
        return None
    items = []
    depth = 0
    start = begin.end()
    for token in _TOKEN.finditer(body, start):
        kind = token[0]
        if kind in {b"[", b"{"}:
            depth += 1
        elif kind in {b"]", b"}"}:
            depth -= 1
        if depth < 0 or (depth == 0 and kind == b","):
            items.append(body[start : token.start()])
            start = token.end()
        if depth < 0:
            return items if kind == b"]" and _END.fullmatch(body, start) else None
    return None
