"""The contract of session stores."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from mqgate.core.sign_in import AttemptLimit, Slot
from mqgate.ports.session_store import Session, SessionStore
from mqgate.testing.clock import NOON

__all__ = ["SessionStoreContract"]

_SECOND = timedelta(seconds=1)
_LIMIT = AttemptLimit(free=3, max_wait=8 * _SECOND, memory=timedelta(hours=1))
_ADA, _HOME = Slot("account ada", _LIMIT), Slot("address home", _LIMIT._replace(free=100))
Reopen = Callable[[], Awaitable[SessionStore]]


def _session(digest: str = "d1", **changes: Any) -> Session:
    members = {"account": "ada", "created_at": NOON, "seen_at": NOON, "address": "10.0.0.1", "client": "browser"}
    return Session(digest=digest, **{**members, **changes})


class SessionStoreContract:
    """Tests of a session store. An adapter provides `store` (empty) and `reopen`."""

    async def test_a_session_survives_a_restart_unchanged(self, store: SessionStore, reopen: Reopen) -> None:
        """A restart of the gateway must not sign anybody out."""
        session = _session(seen_at=NOON + _SECOND, address="2001:db8::1", client="O'Hara; <b> \u4e2d")
        await store.add(session, keep=5)

        assert await (await reopen()).find("d1") == session

    async def test_an_unknown_session_is_none(self, store: SessionStore) -> None:
        """Forged tokens are looked up like real ones."""
        await store.add(_session(), keep=5)

        assert await store.find("d2") is None
        assert await store.find("' OR 1=1 --") is None

    async def test_a_use_is_recorded_and_never_moves_back(self, store: SessionStore) -> None:
        """Gateways with different clocks touch the same session."""
        await store.add(_session(), keep=5)

        await store.touch("d1", NOON + 2 * _SECOND)
        await store.touch("d1", NOON + _SECOND)

        found = await store.find("d1")
        assert found is not None
        assert found.seen_at == NOON + 2 * _SECOND

    async def test_the_oldest_sessions_beyond_the_limit_are_deleted(self, store: SessionStore) -> None:
        """Repeated sign-ins must not fill the store."""
        await store.add(_session("other", account="bob"), keep=2)
        for number in range(4):
            await store.add(_session(f"d{number}", created_at=NOON + number * _SECOND), keep=2)

        assert [session.digest for session in await store.of("ada")] == ["d3", "d2"]
        assert [session.digest for session in await store.of("bob")] == ["other"]

    async def test_sessions_are_removed_singly_all_but_one_and_all(self, store: SessionStore) -> None:
        """Signing out, a new password, and signing out everywhere. Other accounts are never concerned."""
        for number in range(5):
            await store.add(_session(f"d{number}", created_at=NOON + number * _SECOND), keep=9)
        await store.add(_session("other", account="bob"), keep=9)

        assert await store.remove("ada", digest="other") == 0
        assert await store.remove("ada", digest="d4") == 1
        assert await store.remove("ada", other_than="d0") == 3
        assert [session.digest for session in await store.of("ada")] == ["d0"]
        assert await store.remove("ada") == 1
        assert [session.digest for session in await store.of("bob")] == ["other"]

    async def test_attempts_wait_twice_as_long_after_each_failure(self, store: SessionStore) -> None:
        """Three attempts are free; afterwards the wait doubles up to its maximum."""
        now = NOON
        waits = []
        for _ in range(8):
            while (wait := await store.attempt([_ADA, _HOME], now)) > timedelta(0):
                waits.append(wait)
                now += wait

        assert waits == [number * _SECOND for number in (1, 2, 4, 8, 8)]

    async def test_concurrent_attempts_do_not_exceed_the_limit(self, store: SessionStore) -> None:
        """The check and the count are one step, also over several gateways."""
        waits = await asyncio.gather(*(store.attempt([_ADA, _HOME], NOON) for _ in range(12)))

        assert sum(wait == timedelta(0) for wait in waits) == 3

    async def test_an_attempt_that_must_wait_is_not_counted(self, store: SessionStore) -> None:
        """Otherwise an attacker could extend the wait of an account without limit."""
        for _ in range(3):
            await store.attempt([_ADA], NOON)
        for _ in range(5):
            assert await store.attempt([_ADA, _HOME], NOON) == _SECOND

        assert await store.attempt([_ADA, _HOME], NOON + _SECOND) == timedelta(0)

    async def test_success_clears_the_account_and_undoes_one_attempt_of_the_address(self, store: SessionStore) -> None:
        """An attacker must not reset the count of an address by signing in to an account of their own."""
        busy = Slot("address cafe", _LIMIT._replace(free=2))
        for _ in range(2):
            await store.attempt([_ADA, busy], NOON)
        await store.succeed(cleared=_ADA, undone=busy)

        assert await store.attempt([_ADA, busy], NOON) == timedelta(0)
        assert await store.attempt([_ADA, busy], NOON) == _SECOND

    async def test_tidy_deletes_what_is_over(self, store: SessionStore) -> None:
        """A session ends by age or without use; attempts are forgotten."""
        await store.add(_session("old", created_at=NOON - 2 * _SECOND, seen_at=NOON), keep=9)
        await store.add(_session("idle", created_at=NOON, seen_at=NOON - 2 * _SECOND), keep=9)
        await store.add(_session("live"), keep=9)
        for _ in range(3):
            await store.attempt([_ADA], NOON - 2 * _SECOND)

        limit = NOON - _SECOND
        await store.tidy(created_before=limit, seen_before=limit, attempts_before=limit)

        assert [session.digest for session in await store.of("ada")] == ["live"]
        assert await store.attempt([_ADA], NOON - 2 * _SECOND) == timedelta(0)
