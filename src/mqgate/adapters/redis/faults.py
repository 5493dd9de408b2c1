"""Translation of Redis error replies: one error class and one retry rule for each.

| from Redis                                             | becomes             | retry                                 |
|--------------------------------------------------------|---------------------|---------------------------------------|
| no connection: refused, no route, lost, no reply       | storage_unavailable | sent again until the timeout; yes     |
| LOADING, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, BUSY,      | storage_unavailable | yes, by the client                    |
| MISCONF (cannot save), NOREPLICAS                      |                     |                                       |
| READONLY: a replica                                    | storage_unavailable | on a new connection; then yes         |
| MOVED, ASK: another cluster node has the slot          | storage_unavailable | yes; one node must have all slots     |
| NOSCRIPT: the scripts were flushed                     | (none)              | loaded and sent again by the adapter  |
| OOM: maxmemory is reached                              | storage_full        | yes, when memory is available         |
| WRONGPASS, NOAUTH, NOPERM, DENIED; a certificate that  | storage_refused     | no: an operator must correct it       |
| is not trusted; a policy other than noeviction; a      |                     |                                       |
| server older than 6.2                                  |                     |                                       |
| anything else                                          | storage_refused     | no: it is a bug of mqgate, and logged |
"""

import re

from mqgate.core.errors import MqgateError, StorageFull, StorageRefused, StorageUnavailable

__all__ = ["is_wrong_server", "translated"]

_WRONG_SERVER = ("READONLY", "MASTERDOWN")
_UNAVAILABLE = (
    "LOADING",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "UNKILLABLE",
    "MISCONF",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "NOSCRIPT",
)
_DENIED = ("WRONGPASS", "NOAUTH", "NOPERM", "DENIED")
# Permission errors inside a script: first the text since Redis 7.2, then the text of older versions.
_MISSING_RIGHTS = ("ACL failure", "The user executing the script can't")


def translated(text: str) -> MqgateError:
    """Return the error for the text of an error reply."""
    code = _code(text)
    if code in _UNAVAILABLE or code in _WRONG_SERVER:
        return StorageUnavailable(f"Redis is temporarily unavailable: {text}", retry_after=1)
    if code == "OOM":
        return StorageFull(f"Redis is full, raise its maxmemory: {text}", retry_after=5)
    if code in _DENIED or any(phrase in text for phrase in _MISSING_RIGHTS):
        return StorageRefused(f"access denied by Redis, check the user of [redis] url: {text}")
    return StorageRefused(f"Redis rejected a script: {text}")


def is_wrong_server(text: str) -> bool:
    """Return whether the server is not the primary. A new connection may lead to the primary."""
    return _code(text) in _WRONG_SERVER


def _code(text: str) -> str:
    """Return the code of an error, its first word. Redis 6.2 puts the position in the script before it."""
    inside = re.search(r": -([A-Z]+) ", text)
    return inside[1] if inside else text.partition(" ")[0]
