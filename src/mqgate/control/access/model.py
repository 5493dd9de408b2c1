"""The caller of a request and its permissions.

The key of a producer permits publishing to its topic. The key of a group permits receiving, settling and reading its
lag. Everything else requires an admin key. While the registry has no key, every caller is an admin, and the server
listens on loopback only.
"""

from dataclasses import dataclass

from mqgate.core.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller of a request."""

    name: str
    is_admin: bool = False
    producer: str | None = None
    group: str | None = None
    key_id: str = ""

    def need_admin(self) -> None:
        if not self.is_admin:
            raise Forbidden("This operation requires an admin key.")

    def need_group(self, group: str) -> None:
        if not self.is_admin and self.group != group:
            raise Forbidden(f"This operation requires a key of group {group} or an admin key.")

    def need_publish(self) -> None:
        if not self.is_admin and self.producer is None:
            raise Forbidden("This operation requires a producer key or an admin key.")


OPEN = Principal(name="open", is_admin=True)
