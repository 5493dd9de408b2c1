"""A message's properties as one text: name U+0001 value U+0002, repeated."""

from collections.abc import Mapping

__all__ = ["MAX_BYTES", "decode", "decode_bytes", "encode"]

# What a broker stores; it adds some hundred bytes of its own.
MAX_BYTES = 32_767
_BETWEEN, _END = "\x01", "\x02"


def encode(properties: Mapping[str, str]) -> str:
    """ValueError for what the format cannot carry: empty texts, and its own two marks."""
    text = ""
    is_whole = True
    for name, value in properties.items():
        text += f"{name}\x01{value}\x02"
        if not name or not value:
            is_whole = False
    if text.count(_BETWEEN) != len(properties) or text.count(_END) != len(properties):
        raise ValueError("properties must not contain U+0001 or U+0002")
    if not is_whole:
        raise ValueError("names and values of properties must not be empty")
    return text


def decode(text: str) -> dict[str, str]:
    """Empty names and values are left out, as Java's decoder does."""
    found: dict[str, str] = {}
    for entry in text.split(_END):
        name, _, value = entry.partition(_BETWEEN)
        if name and value:
            found[name] = value
    return found


def decode_bytes(data: bytes) -> dict[str, str]:
    """The same from the wire. A broker does not look into batches, so what is no UTF-8 must not stop its queue."""
    return decode(data.decode("utf-8", "replace"))
