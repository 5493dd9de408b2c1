"""Throttling of attempts to sign in, per account and per address, over all gateways.

An attempt is counted before the password is checked, and the count is undone if it was right. So concurrent attempts
cannot exceed the limit. An account that does not exist is throttled like any other.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_network

from mqgate.core.addresses import parse_address
from mqgate.core.errors import SignInThrottled
from mqgate.core.sign_in import AttemptLimit, Slot, slot_of
from mqgate.ports.session_store import SessionStore

__all__ = ["ATTEMPT_MEMORY", "count_attempt", "sign_in_slots"]

_PER_ACCOUNT = AttemptLimit(free=5, max_wait=timedelta(minutes=1), memory=timedelta(hours=1))
_PER_ADDRESS = AttemptLimit(free=20, max_wait=timedelta(minutes=1), memory=timedelta(minutes=15))
ATTEMPT_MEMORY = max(_PER_ACCOUNT.memory, _PER_ADDRESS.memory)
_NO_WAIT = timedelta(0)


def sign_in_slots(account: str, address: str) -> tuple[Slot, Slot]:
    """Return the counters of an account and of the network of an address."""
    return slot_of("account", account, _PER_ACCOUNT), slot_of("address", _network(address), _PER_ADDRESS)


async def count_attempt(store: SessionStore, slots: Sequence[Slot], now: datetime) -> None:
    """Count an attempt. Raise SignInThrottled if it has to wait."""
    wait = await store.attempt(slots, now)
    if wait > _NO_WAIT:
        seconds = max(wait.total_seconds(), 1)
        raise SignInThrottled(f"Try again in {seconds:.0f} s.", retry_after=seconds)


def _network(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, all of which one client may use."""
    found = parse_address(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return address if found is None else str(found)
