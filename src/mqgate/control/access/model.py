"""The caller of a request, and the rules of credentials."""

from dataclasses import dataclass

from mqgate.core.entries import Account, Group, Producer, Snapshot, Topic
from mqgate.core.errors import FirstKeyNotAdmin, InvalidValue

__all__ = ["OPEN", "Principal", "account_principal", "check_has_admin", "check_label", "has_admin", "is_open"]

_MAX_LABEL = 100
_NO_TEAMS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller. `kind` selects the column of the permission table."""

    name: str
    kind: str
    producer: str | None = None
    group: str | None = None
    key_id: str = ""
    # Of a person who signed in.
    account: str | None = None
    teams: frozenset[str] = _NO_TEAMS
    session: str = ""

    def owns(self, entry: Topic | Producer | Group | None) -> bool:
        """Return whether a team of this person owns an entry."""
        return entry is not None and entry.team is not None and entry.team in self.teams


# While there are no credentials, every caller is an admin, and the server listens on loopback only.
OPEN = Principal(name="open", kind="admin")


def account_principal(account: Account, session: str) -> Principal:
    return Principal(
        name=f"account {account.name}",
        kind=account.role,
        account=account.name,
        teams=account.teams,
        session=session,
    )


def is_open(snapshot: Snapshot) -> bool:
    """Return whether there is neither a key nor an account."""
    return not snapshot.keys and not snapshot.accounts


def has_admin(snapshot: Snapshot) -> bool:
    """Return whether somebody could create further credentials."""
    return any(key.role == "admin" for key in snapshot.keys.values()) or any(
        account.role == "admin" and not account.is_disabled for account in snapshot.accounts.values()
    )


def check_has_admin(after: Snapshot) -> None:
    """Raise FirstKeyNotAdmin if nobody could create further credentials after a change."""
    if not has_admin(after):
        raise FirstKeyNotAdmin('Create an admin key first: {"role": "admin"}.', field="role")


def check_label(text: str | None, field: str) -> None:
    """Raise InvalidValue for a name or description that people could not read."""
    if text is not None and not (1 <= len(text) <= _MAX_LABEL and text.isprintable()):
        raise InvalidValue(f"{field} must be 1 to {_MAX_LABEL} printable characters", field=field)
