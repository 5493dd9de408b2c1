"""What the types of requests and responses do not say: the values of fixed words, and which texts are instants."""

from collections.abc import Iterator
from typing import Any

from mqgate.core.errors import MqgateError
from mqgate.core.lease import ReceiveState, SettlementOutcome

__all__ = ["add_details"]

# In responses; an instant of a request may also be a number.
_INSTANTS = frozenset(
    {"storedAt", "deliverAt", "leasedUntil", "lockedUntil", "lastConsumedAt", "firstStoredAt", "lastStoredAt"}
)


def add_details(components: dict[str, Any]) -> None:
    """Add enums and formats to the schemas of the document."""
    _members(components, "ReceiveOut")["state"]["enum"] = [*ReceiveState]
    _members(components, "OutcomeOut")["outcome"]["enum"] = [*SettlementOutcome]
    _members(components, "Problem")["code"]["enum"] = sorted({leaf.code for leaf in _leaves(MqgateError)})
    for schema in components.values():
        for name, member in schema.get("properties", {}).items():
            for kind in (member, *member.get("anyOf", ())):
                if name in _INSTANTS and kind == {"type": "string"}:
                    kind["format"] = "date-time"


def _members(components: dict[str, Any], name: str) -> dict[str, Any]:
    members: dict[str, Any] = components[name]["properties"]
    return members


def _leaves(base: type[MqgateError]) -> Iterator[type[MqgateError]]:
    children = base.__subclasses__()
    if not children and base.__module__ == MqgateError.__module__:
        yield base
    for child in children:
        yield from _leaves(child)
