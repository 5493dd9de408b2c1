"""Sign in and out.

A session is a random token that the browser keeps in a cookie, or that a command sends as a bearer token. Only its hash
is stored. Every sign-in creates a new token and never accepts one from the client, so that nobody can be signed in to a
session that somebody else knows. A session ends after `idle_timeout` without use, after `max_age` in any case, when it
is signed out, and when its account is disabled or deleted or gets a new password.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import structlog

from mqgate.control.access.changes import EntryChanges
from mqgate.control.access.keys import digest_of
from mqgate.control.access.model import Principal, account_principal
from mqgate.control.access.passwords import Passwords
from mqgate.control.access.throttle import ATTEMPT_MEMORY, count_attempt, sign_in_slots
from mqgate.control.registry.directory import CachedDirectory
from mqgate.core.entries import Account
from mqgate.core.errors import SignInFailed, Unauthorized
from mqgate.ports.session_store import Session, SessionStore
from mqgate.settings import SessionSettings

__all__ = ["TOKEN_PREFIX", "Sessions"]

TOKEN_PREFIX = "mqs_"  # noqa: S105 - the beginning of a token, not a secret
_MAX_SESSIONS = 20
_MAX_CLIENT = 200
_TOUCH_INTERVAL = timedelta(minutes=1)
_log = structlog.get_logger()


class Sessions:
    def __init__(
        self,
        store: SessionStore,
        directory: CachedDirectory,
        passwords: Passwords,
        changes: EntryChanges,
        settings: SessionSettings,
        clock: Callable[[], datetime],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._directory = directory
        self._passwords = passwords
        self._changes = changes
        self._settings = settings
        self._clock = clock
        self._catch_up = catch_up

    async def sign_in(
        self, name: str, password: str, *, address: str, client: str, replaces: str | None
    ) -> tuple[Account, Session, str]:
        """Return the account, the new session and its token. `replaces` is the token of an earlier session."""
        slots = sign_in_slots(name, address)
        await count_attempt(self._store, slots, self._clock())
        if name not in self._directory.snapshot.accounts:
            # Another gateway may have created it.
            await self._catch_up()
        account = self._directory.snapshot.accounts.get(name)
        is_right = await self._passwords.verify(account.password_hash if account else None, password)
        if account is None or not is_right or account.is_disabled:
            _log.warning("sign-in failed", account=name[:100], address=address)
            raise SignInFailed("Account or password is wrong.")
        await self._store.succeed(cleared=slots[0], undone=slots[1])
        token, now = TOKEN_PREFIX + secrets.token_urlsafe(32), self._clock()
        session = Session(
            digest=digest_of(token),
            account=name,
            created_at=now,
            seen_at=now,
            address=address,
            client=_printable(client),
        )
        if replaces is not None:
            await self._store.remove(name, digest=digest_of(replaces))
        await self._store.add(session, keep=_MAX_SESSIONS)
        await self._changes.record(f"account {name}", "sign in", f"account {name}", {"address": address})
        return account, session, token

    async def authenticate(self, token: str) -> Principal:
        """Return the caller that a token belongs to. Raise Unauthorized if its session is over."""
        now = self._clock()
        session = await self._store.find(digest_of(token))
        if session is not None and session.account not in self._directory.snapshot.accounts:
            await self._catch_up()
        account = None if session is None else self._directory.snapshot.accounts.get(session.account)
        if (
            session is None
            or account is None
            or account.is_disabled
            # An account of the same name that was deleted since.
            or session.created_at < account.created_at
            or now - session.created_at >= self._settings.max_age
            or now - session.seen_at >= self._settings.idle_timeout
        ):
            raise Unauthorized("The session is over. Sign in again.")
        if now - session.seen_at >= min(_TOUCH_INTERVAL, self._settings.idle_timeout / 4):
            await self._store.touch(session.digest, now)
        return account_principal(account, session.digest)

    async def list(self, account: str) -> Sequence[Session]:
        """Return the sessions of an account that are not over, the newest first."""
        now = self._clock()
        return [
            session
            for session in await self._store.of(account)
            if now - session.created_at < self._settings.max_age and now - session.seen_at < self._settings.idle_timeout
        ]

    async def sign_out(self, account: str, session: str) -> None:
        """End one session."""
        await self._store.remove(account, digest=session)

    async def sign_out_everywhere(self, account: str, actor: str) -> int:
        """End all sessions of an account. Return their number."""
        count = await self._store.remove(account)
        await self._changes.record(actor, "sign out", f"account {account}", {"sessions": count})
        return count

    async def tidy(self) -> None:
        """Delete sessions and attempts that are over. The janitor calls it regularly."""
        now = self._clock()
        await self._store.tidy(
            created_before=now - self._settings.max_age,
            seen_before=now - self._settings.idle_timeout,
            attempts_before=now - ATTEMPT_MEMORY,
        )


def _printable(text: str) -> str:
    return "".join(letter for letter in text[:_MAX_CLIENT] if letter.isprintable())
