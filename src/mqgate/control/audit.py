"""The parts of an audit entry that describe a registry entry."""

import msgspec

from mqgate.core.entries import ApiKey
from mqgate.ports.registry_store import Entry

__all__ = ["audit_details", "audit_subject"]

_SECRETS = ("digest", "password_hash")


def audit_details(entry: Entry) -> dict[str, object]:
    """Return an entry as audit details, without hashes of secrets."""
    details: dict[str, object] = msgspec.to_builtins(entry)
    return {name: value for name, value in details.items() if name not in _SECRETS}


def audit_subject(entry: Entry) -> str:
    if isinstance(entry, ApiKey):
        return f"key {entry.id}"
    return f"{type(entry).__name__.lower()} {entry.name}"
