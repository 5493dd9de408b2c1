"""The stores on PostgreSQL fulfil the contracts of their ports."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.postgres.application_store import PostgresApplicationStore
from mqgate.adapters.postgres.database import Database
from mqgate.adapters.postgres.dead_letters import PostgresDeadLetters
from mqgate.adapters.postgres.idempotency import PostgresIdempotencyStore
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.registry_store import PostgresRegistryStore
from mqgate.adapters.postgres.session_store import PostgresSessionStore
from mqgate.adapters.postgres.timer_store import PostgresTimerStore
from mqgate.testing.application_store_contract import ApplicationStoreContract
from mqgate.testing.dead_letters_contract import DeadLettersContract
from mqgate.testing.idempotency_contract import WINDOW, IdempotencyContract
from mqgate.testing.registry_store_contract import RegistryStoreContract
from mqgate.testing.session_store_contract import SessionStoreContract
from mqgate.testing.timer_store_contract import TimerStoreContract

Restart = Callable[[], Awaitable[tuple[Database, Presence]]]


class TestPostgresTimerStore(TimerStoreContract):
    @pytest.fixture
    def store(self, database: Database, presence: Presence) -> PostgresTimerStore:
        return PostgresTimerStore(database, presence)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresTimerStore]]:
        async def reopen() -> PostgresTimerStore:
            return PostgresTimerStore(*await restart())

        return reopen


class TestPostgresIdempotency(IdempotencyContract):
    @pytest.fixture
    def store(self, database: Database, presence: Presence) -> PostgresIdempotencyStore:
        return PostgresIdempotencyStore(database, presence, WINDOW)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresIdempotencyStore]]:
        async def reopen() -> PostgresIdempotencyStore:
            return PostgresIdempotencyStore(*await restart(), WINDOW)

        return reopen


class TestPostgresRegistryStore(RegistryStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> PostgresRegistryStore:
        return PostgresRegistryStore(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresRegistryStore]]:
        async def reopen() -> PostgresRegistryStore:
            return PostgresRegistryStore((await restart())[0])

        return reopen


class TestPostgresApplicationStore(ApplicationStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> PostgresApplicationStore:
        return PostgresApplicationStore(database)

    @pytest.fixture
    def registry_store(self, database: Database) -> PostgresRegistryStore:
        return PostgresRegistryStore(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresApplicationStore]]:
        async def reopen() -> PostgresApplicationStore:
            return PostgresApplicationStore((await restart())[0])

        return reopen


class TestPostgresSessionStore(SessionStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> PostgresSessionStore:
        return PostgresSessionStore(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresSessionStore]]:
        async def reopen() -> PostgresSessionStore:
            return PostgresSessionStore((await restart())[0])

        return reopen


class TestPostgresDeadLetters(DeadLettersContract):
    @pytest.fixture
    def store(self, database: Database) -> PostgresDeadLetters:
        return PostgresDeadLetters(database)

    @pytest.fixture
    def reopen(self, restart: Restart) -> Callable[[], Awaitable[PostgresDeadLetters]]:
        async def reopen() -> PostgresDeadLetters:
            return PostgresDeadLetters((await restart())[0])

        return reopen
