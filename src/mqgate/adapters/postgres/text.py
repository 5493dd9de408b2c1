r"""Escaping of U+0000, which PostgreSQL text cannot contain but keys, tags and reasons can. It is stored as \0."""

import re

__all__ = ["escape", "unescape"]

_ESCAPED = re.compile(r"\\(.)")


def escape(text: str | None) -> str | None:
    """Return the stored form. Text without backslash and U+0000 is unchanged."""
    if text is None or ("\\" not in text and "\0" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescape(text: str | None) -> str | None:
    """Return the original text of a stored form."""
    if text is None or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else match[1], text)
