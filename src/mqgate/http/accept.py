"""Content negotiation with the Accept header."""

from collections.abc import Sequence

from mqgate.core.errors import NotAcceptable

__all__ = ["choose"]

_EXACT, _SUBTYPES, _ALL = 2, 1, 0


def choose(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type with the highest quality, or the first one without an Accept header.

    Of types with the same quality, an exact match is preferred to a wildcard. Raise NotAcceptable if none matches.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = [parsed for text in accept.split(",") if (parsed := _range(text)) is not None]
    rated = [(_rate(kind, ranges), kind) for kind in offered]
    (quality, _), best = max(rated, key=lambda pair: pair[0])
    if not quality:
        raise NotAcceptable(f"Accept must allow {' or '.join(offered)}.", field="accept")
    return best


def _range(text: str) -> tuple[str, float] | None:
    """Return a media range and its quality, or None if it is malformed."""
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((parameter.removeprefix("q=") for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        found = float(quality)
    except ValueError:
        return None
    return (kind, found) if "/" in kind and 0 <= found <= 1 else None


def _rate(kind: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """Return the quality of a type and the precision of the range that matched. The most precise range decides."""
    names = {kind: _EXACT, f"{kind.partition('/')[0]}/*": _SUBTYPES, "*/*": _ALL}
    matching = [(names[named], quality) for named, quality in ranges if named in names]
    precision, quality = max(matching, default=(_ALL, 0.0))
    return quality, precision
