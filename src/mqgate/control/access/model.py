"""Who is calling, and what that opens.

A producer's key publishes to its topic; a group's key receives, settles and reads its lag; the rest is admin's. With no
key in the registry everybody is admin, and the server listens on loopback only.
"""

from dataclasses import dataclass

from mqgate.core.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    name: str
    is_admin: bool = False
    producer: str | None = None
    group: str | None = None
    key_id: str = ""

    def need_admin(self) -> None:
        if not self.is_admin:
            raise Forbidden("this call needs an admin's key")

    def need_group(self, group: str) -> None:
        if not self.is_admin and self.group != group:
            raise Forbidden(f"this call needs the key of group {group}, or an admin's")

    def need_publish(self) -> None:
        if not self.is_admin and self.producer is None:
            raise Forbidden("this call needs a producer's key, or an admin's")


OPEN = Principal(name="open", is_admin=True)
