"""Rules for names: the intersection of what all engines accept."""

import re

from mqgate.core.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MAX_CLIENT_LENGTH = 128
OWN_PREFIX = "mqgate_"
# RocketMQ stores 32,767 bytes. The rest is for the id, the origin of a redriven message and properties of the broker.
MAX_PROPERTY_BYTES = 30 << 10


def retry_topic(group: str) -> str:
    """Return the private topic of a group for redriven messages."""
    return f"{OWN_PREFIX}retry_{group}"


def is_name(text: str) -> bool:
    """Return whether the text is a valid name of a topic, producer or group, or a reserved name of the gateway."""
    return bool(_NAME.fullmatch(text))


def check_name(name: str, field: str) -> str:
    """Return the name of a topic, producer or group. Raise InvalidValue if it is not valid."""
    if not is_name(name):
        raise InvalidValue(f"{field} must be 1 to 100 characters of A-Z a-z 0-9 _ -", field=field)
    if name.startswith(OWN_PREFIX):
        raise InvalidValue(f"{field} must not begin with {OWN_PREFIX}: these names are reserved", field=field)
    return name


def is_client(text: str) -> bool:
    """Return whether the text is a valid client id."""
    return 1 <= len(text) <= _MAX_CLIENT_LENGTH and text.isprintable()


def check_client(client: str, field: str = "clientId") -> str:
    """Return a client id. Raise InvalidValue if it is not valid."""
    if not is_client(client):
        raise InvalidValue(f"{field} must be 1 to {_MAX_CLIENT_LENGTH} printable characters", field=field)
    return client


def check_text(text: str, field: str) -> str:
    """Return a key, tag, property name or value. Raise InvalidValue if RocketMQ cannot store it."""
    if not text:
        raise InvalidValue(f"{field} must not be empty: omit it instead", field=field)
    if "\x01" in text or "\x02" in text:
        raise InvalidValue(f"{field} must not contain U+0001 or U+0002", field=field)
    return text
