"""What names may look like: the strictest of what our engines take."""

import re

from mqgate.core.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LONGEST_CLIENT = 128
OWN_PREFIX = "mqgate_"
# RocketMQ stores 32,767 bytes, of which id, marks, a redriven message's origin and the broker's own take some.
MAX_PROPERTY_BYTES = 30 << 10


def retry_topic(group: str) -> str:
    """The log private to a group, through which redriven messages go."""
    return f"{OWN_PREFIX}retry_{group}"


def is_name(text: str) -> bool:
    """Whether a topic, producer or group can have this name; the gateway's own names count too."""
    return bool(_NAME.fullmatch(text))


def check_name(name: str, field: str) -> str:
    """Return a topic's, producer's or group's name, or refuse it."""
    if not is_name(name):
        raise InvalidValue(f"{field} must be 1 to 100 characters of A-Z a-z 0-9 _ -", field=field)
    if name.startswith(OWN_PREFIX):
        raise InvalidValue(f"{field} must not begin with {OWN_PREFIX}: those names are mqgate's own", field=field)
    return name


def is_client(text: str) -> bool:
    """Whether a client can have this name."""
    return 1 <= len(text) <= _LONGEST_CLIENT and text.isprintable()


def check_client(client: str, field: str = "clientId") -> str:
    """Return a client's name, or refuse it."""
    if not is_client(client):
        raise InvalidValue(f"{field} must be 1 to {_LONGEST_CLIENT} printable characters", field=field)
    return client


def check_text(text: str, field: str) -> str:
    """Return a key, tag, property name or value, or refuse what RocketMQ cannot carry."""
    if not text:
        raise InvalidValue(f"{field} must not be empty: leave it out instead", field=field)
    if "\x01" in text or "\x02" in text:
        raise InvalidValue(f"{field} must not contain U+0001 or U+0002", field=field)
    return text
