"""Which form of an answer a client takes."""

from collections.abc import Sequence

from mqgate.core.errors import NotAcceptable

__all__ = ["choose"]

_EXACT, _SUBTYPES, _ALL = 2, 1, 0


def choose(accept: str | None, offered: Sequence[str]) -> str:
    """The offered type that an Accept header likes best; the first one if it has no wish.

    Of types liked the same, one that is named beats one that `*` stands for.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = [found for each in accept.split(",") if (found := _range(each)) is not None]
    liked = [(_liking(kind, ranges), kind) for kind in offered]
    (quality, _), best = max(liked, key=lambda each: each[0])
    if not quality:
        raise NotAcceptable(f"ask for {' or '.join(offered)}: there is nothing else here", field="accept")
    return best


def _range(text: str) -> tuple[str, float] | None:
    """A media range and its quality; None for what is neither."""
    kind, *parameters = (each.strip().lower() for each in text.split(";"))
    quality = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
    try:
        found = float(quality)
    except ValueError:
        return None
    return (kind, found) if "/" in kind and 0 <= found <= 1 else None


def _liking(kind: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """How much a type is liked, and by how close a range: the closest one decides."""
    names = {kind: _EXACT, f"{kind.partition('/')[0]}/*": _SUBTYPES, "*/*": _ALL}
    matching = [(names[named], quality) for named, quality in ranges if named in names]
    closeness, quality = max(matching, default=(_ALL, 0.0))
    return quality, closeness
