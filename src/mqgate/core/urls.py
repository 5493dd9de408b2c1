"""Server URLs, which may contain a password."""

import re

__all__ = ["can_show_hosts", "mask_passwords"]

_URL_PASSWORD = re.compile(r"(://[^\s:/@]*):\S*@")
_CONNINFO_PASSWORD = re.compile(r"(\bpassword\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)
_USER_INFO = re.compile(r"[^@/]*@")
_HOST = re.compile(r"(\[[^\]]*\]|[^:@\[\]]*)(:[0-9]*)?")


def mask_passwords(text: str) -> str:
    """Return the text with `***` in place of passwords in URLs and libpq connection strings."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1:***@", text)
    if "assword" in text or "ASSWORD" in text:
        text = _CONNINFO_PASSWORD.sub(r"\1***", text)
    return text


def can_show_hosts(postgres_url: str) -> bool:
    """Return False if libpq would read a part of the password as a host or port, and show it in error messages.

    libpq ends the password at the first @ and the hosts at the first /. Both must be percent-encoded in a password.
    """
    _, scheme, rest = postgres_url.partition("://")
    user_info = _USER_INFO.match(rest)
    hosts = re.split(r"[/?]", rest[user_info.end() :] if user_info else rest, maxsplit=1)[0]
    return not scheme or all(map(_HOST.fullmatch, hosts.split(",")))
