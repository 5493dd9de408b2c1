"""Names of all Redis keys and channels.

Keys of a group share the hash tag `{<group>}`, so that a script can use them on a Redis Cluster node. Group keys are
passed to scripts through KEYS. Scope and queue keys depend on names that a script reads at run time, so scripts build
them from KEYS[1]; every such name is listed here.

    <prefix>:{<group>}:<group key>                       one per group
    <scope>:<scope key>                                  <scope> is <prefix>:{<group>}, or for each client of a
                                                         broadcast group <prefix>:{<group>}:client:<clientId>
    <scope>:<queue key>:<queue>                          one per queue
    <prefix>:rate:{<producer>}                           token bucket of a producer
"""

import re
from functools import lru_cache

__all__ = [
    "CLIENT_SCOPE",
    "GROUP_KEYS",
    "QUEUE_KEYS",
    "SCOPE_KEYS",
    "group_keys",
    "group_of_key",
    "group_scan_pattern",
    "rate_limit_key",
    "wake_up_channel",
]

# In the order of KEYS[2] and following, see request.lua.
GROUP_KEYS = ("tokens", "seen", "clients", "scopes", "remembered", "parked")
SCOPE_KEYS = (
    "state",
    "positions",
    "free",
    "aged",
    "held",
    "exhausted",
    "attempts",
    "unacked",
    "unacked:order",
    "grants",
    "leases",
    "failed",
    "due",
    "dying",
    "fresh",
    "placing",
    "ended",
    "emptied",
    "overtaken",
)
QUEUE_KEYS = ("open", "failed", "order", "keys")
CLIENT_SCOPE = "client"


@lru_cache(maxsize=4_096)
def group_keys(prefix: str, group: str) -> tuple[str, ...]:
    """Return KEYS of the lease scripts: the common beginning of all keys of the group, then its group keys."""
    base = f"{prefix}:{{{group}}}"
    return base, *(f"{base}:{name}" for name in GROUP_KEYS)


def rate_limit_key(prefix: str, producer: str) -> str:
    """Return the key of a producer's token bucket."""
    return f"{prefix}:rate:{{{producer}}}"


def wake_up_channel(prefix: str) -> str:
    """Return the channel on which gateways publish wake-ups."""
    return f"{prefix}:wake"


def group_scan_pattern(prefix: str) -> str:
    """Return the SCAN pattern that matches the keys of all groups."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + ":{*"


def group_of_key(prefix: str, key: bytes) -> str | None:
    """Return the group that a key belongs to, or None if it is not the key of a group."""
    match = re.match(re.escape(f"{prefix}:{{").encode() + rb"([^}]*)\}", key)
    return None if match is None else match[1].decode("utf-8", "replace")
