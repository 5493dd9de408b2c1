"""The hash by which `orderId` selects a queue."""

__all__ = ["java_hash"]


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of a text: a signed 32-bit number."""
    value = 0
    code_units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(code_units[::2], code_units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
