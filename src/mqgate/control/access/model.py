"""The caller of a request."""

from dataclasses import dataclass

__all__ = ["OPEN", "Principal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller. `kind` selects the column of the permission table."""

    name: str
    kind: str
    producer: str | None = None
    group: str | None = None
    key_id: str = ""


# While there are no credentials, every caller is an admin, and the server listens on loopback only.
OPEN = Principal(name="open", kind="admin")
