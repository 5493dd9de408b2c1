"""Registry, sessions, applications and dead letters of the embedded engine."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.sqlite.application_store import SqliteApplicationStore
from mqgate.adapters.sqlite.dead_letters import SqliteDeadLetters
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.registry_store import SqliteRegistryStore
from mqgate.adapters.sqlite.session_store import SqliteSessionStore
from mqgate.testing.application_store_contract import ApplicationStoreContract
from mqgate.testing.dead_letters_contract import DeadLettersContract
from mqgate.testing.registry_store_contract import RegistryStoreContract
from mqgate.testing.session_store_contract import SessionStoreContract

ReopenEngine = Callable[[], Awaitable[Engine]]


class TestSqliteRegistryStore(RegistryStoreContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteRegistryStore:
        return SqliteRegistryStore(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteRegistryStore]]:
        async def reopen() -> SqliteRegistryStore:
            return SqliteRegistryStore(await reopen_engine())

        return reopen


class TestSqliteApplicationStore(ApplicationStoreContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteApplicationStore:
        return SqliteApplicationStore(engine)

    @pytest.fixture
    def registry_store(self, engine: Engine) -> SqliteRegistryStore:
        return SqliteRegistryStore(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteApplicationStore]]:
        async def reopen() -> SqliteApplicationStore:
            return SqliteApplicationStore(await reopen_engine())

        return reopen


class TestSqliteSessionStore(SessionStoreContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteSessionStore:
        return SqliteSessionStore(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteSessionStore]]:
        async def reopen() -> SqliteSessionStore:
            return SqliteSessionStore(await reopen_engine())

        return reopen


class TestSqliteDeadLetters(DeadLettersContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteDeadLetters:
        return SqliteDeadLetters(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: ReopenEngine) -> Callable[[], Awaitable[SqliteDeadLetters]]:
        async def reopen() -> SqliteDeadLetters:
            return SqliteDeadLetters(await reopen_engine())

        return reopen
