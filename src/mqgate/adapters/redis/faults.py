"""What Redis says, in mqgate's words: one error and one retry rule for each answer.

| from Redis                                             | becomes             | retry                                 |
|--------------------------------------------------------|---------------------|---------------------------------------|
| no connection: refused, no route, lost, silent         | storage_unavailable | sent again until the timeout; yes     |
| LOADING, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, BUSY,      | storage_unavailable | yes, by the client                    |
| MISCONF (cannot save), NOREPLICAS                      |                     |                                       |
| READONLY: a replica                                    | storage_unavailable | on a new connection; then yes         |
| MOVED, ASK: a cluster's slot is elsewhere              | storage_unavailable | yes; one node must have all slots     |
| NOSCRIPT: somebody flushed the scripts                 | (none)              | loaded and sent again here            |
| OOM: maxmemory is reached                              | storage_full        | yes, when there is room               |
| WRONGPASS, NOAUTH, NOPERM, DENIED; a certificate that  | storage_refused     | no: an operator has to mend it        |
| is not trusted; a policy other than noeviction; a      |                     |                                       |
| server older than 6.2                                  |                     |                                       |
| anything else                                          | storage_refused     | no: it is a fault of ours, and logged |
"""

import re

from mqgate.core.errors import MqgateError, StorageFull, StorageRefused, StorageUnavailable

__all__ = ["is_elsewhere", "translated"]

_ELSEWHERE = ("READONLY", "MASTERDOWN")
_AWAY = (
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
_REFUSED = ("WRONGPASS", "NOAUTH", "NOPERM", "DENIED")
# From inside a script, since 7.2 and before.
_MISSING_RIGHTS = ("ACL failure", "The user executing the script can't")


def translated(text: str) -> MqgateError:
    """The fact that an error reply reports."""
    word = _word(text)
    if word in _AWAY or word in _ELSEWHERE:
        return StorageUnavailable(f"Redis does not serve now: {text}", retry_after=1)
    if word == "OOM":
        return StorageFull(f"Redis is full, raise its maxmemory: {text}", retry_after=5)
    if word in _REFUSED or any(words in text for words in _MISSING_RIGHTS):
        return StorageRefused(f"Redis does not let us in, see [redis] url: {text}")
    return StorageRefused(f"Redis refused a script: {text}")


def is_elsewhere(text: str) -> bool:
    """Whether this connection leads to the wrong server: a new one may lead to the right one."""
    return _word(text) in _ELSEWHERE


def _word(text: str) -> str:
    """What an error is called: its first word. Redis 6.2 puts before it that a script was running, and where."""
    inside = re.search(r": -([A-Z]+) ", text)
    return inside[1] if inside else text.partition(" ")[0]
