"""The property text of a message: name U+0001 value U+0002, repeated."""

from collections.abc import Mapping

__all__ = ["MAX_BYTES", "decode", "decode_bytes", "encode"]

# The limit of a broker, which adds some hundred bytes of its own.
MAX_BYTES = 32_767
_BETWEEN, _END = "\x01", "\x02"


def encode(properties: Mapping[str, str]) -> str:
    """Encode properties. Raise ValueError for empty names and values, and for the two separators in them."""
    text = ""
    has_empty = False
    for name, value in properties.items():
        text += f"{name}\x01{value}\x02"
        if not name or not value:
            has_empty = True
    if text.count(_BETWEEN) != len(properties) or text.count(_END) != len(properties):
        raise ValueError("properties must not contain U+0001 or U+0002")
    if has_empty:
        raise ValueError("names and values of properties must not be empty")
    return text


def decode(text: str) -> dict[str, str]:
    """Decode properties. Empty names and values are omitted, as in the Java decoder."""
    found: dict[str, str] = {}
    for entry in text.split(_END):
        name, _, value = entry.partition(_BETWEEN)
        if name and value:
            found[name] = value
    return found


def decode_bytes(data: bytes) -> dict[str, str]:
    """Decode properties from bytes. Brokers do not check batches, so invalid UTF-8 is replaced instead of refused."""
    return decode(data.decode("utf-8", "replace"))
