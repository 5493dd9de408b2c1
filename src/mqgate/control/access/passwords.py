"""Passwords: argon2id with the parameters of RFC 9106 for limited memory (64 MiB, 3 passes).

Hashing takes tens of milliseconds and 64 MiB, so it runs in threads, a few at a time, and the number of callers that
wait is bounded.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

from mqgate.core.errors import InvalidValue, Overloaded

__all__ = ["Passwords", "check_password"]

_MIN_LENGTH, _MAX_LENGTH = 10, 1_000
_MAX_CONCURRENT = 2
_MAX_WAITING = 32
_T = TypeVar("_T")


def check_password(password: str, field: str = "password") -> str:
    """Return a new password. Raise InvalidValue if it is too short or too long."""
    if not _MIN_LENGTH <= len(password) <= _MAX_LENGTH:
        raise InvalidValue(f"{field} must have {_MIN_LENGTH} to {_MAX_LENGTH} characters", field=field)
    return password


class Passwords:
    """Hashes and verifies passwords."""

    def __init__(self) -> None:
        self._hasher = argon2.PasswordHasher()
        self._free = asyncio.Semaphore(_MAX_CONCURRENT)
        self._waiting = 0
        self._dummy = ""

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(_encoded(password)))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Return whether a password matches. Without a stored hash it takes as long, and never matches."""
        if not stored and not self._dummy:
            self._dummy = await self.hash("no account has this password")
        is_match = await self._run(lambda: self._matches(stored or self._dummy, password))
        return is_match and bool(stored)

    def _matches(self, stored: str, password: str) -> bool:
        if len(password) > _MAX_LENGTH:
            return False
        try:
            return self._hasher.verify(stored, _encoded(password))
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= _MAX_WAITING:
            raise Overloaded("Too many passwords are being checked. Try again later.", retry_after=1)
        self._waiting += 1
        try:
            async with self._free:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def _encoded(password: str) -> bytes:
    # JSON may contain a lone surrogate, which has no UTF-8.
    return password.encode("utf-8", "surrogatepass")
