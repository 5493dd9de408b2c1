"""Assembles authentication and the management of credentials."""

from collections.abc import Awaitable, Callable

from mqgate.control.access.accounts import Accounts
from mqgate.control.access.changes import EntryChanges
from mqgate.control.access.keys import ApiKeys
from mqgate.control.access.passwords import Passwords
from mqgate.control.access.service import Access, Credentials
from mqgate.control.access.sessions import Sessions
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.addresses import is_loopback
from mqgate.engines import Control
from mqgate.settings import Settings

__all__ = ["build_access"]


def build_access(
    settings: Settings, control: Control, directory: CachedDirectory, catch_up: Callable[[], Awaitable[None]]
) -> tuple[Access, Credentials]:
    """Return the service that checks callers, and the services that manage credentials."""
    may_be_open = is_loopback(settings.http.host)
    clock, passwords = control.clock, Passwords()
    changes = EntryChanges(control.registry, directory, clock)
    sessions = Sessions(control.sessions, directory, passwords, changes, settings.sessions, clock, catch_up)
    return (
        Access(directory, sessions, clock, may_be_open=may_be_open, catch_up=catch_up),
        Credentials(
            ApiKeys(changes, clock, may_be_open=may_be_open),
            Accounts(changes, control.sessions, passwords, clock, may_be_open=may_be_open),
            sessions,
        ),
    )
