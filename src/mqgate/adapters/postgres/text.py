r"""Text as PostgreSQL keeps it: it has no U+0000, which keys, tags and reasons may contain; so it is written \0."""

import re

__all__ = ["kept", "told"]

_ESCAPED = re.compile(r"\\(.)")


def kept(text: str | None) -> str | None:
    """As it is stored; what contains neither a backslash nor U+0000 is itself."""
    if text is None or ("\\" not in text and "\0" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def told(text: str | None) -> str | None:
    """As it was given."""
    if text is None or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text)
