"""The message log of the embedded engine."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.testing.clock import ManualClock
from mqgate.testing.message_log_contract import MessageLogContract


async def loaded(engine: Engine) -> SqliteMessageLog:
    log = SqliteMessageLog(engine)
    await log.load()
    return log


class TestSqliteMessageLog(MessageLogContract):
    @pytest.fixture
    async def log(self, engine: Engine) -> SqliteMessageLog:
        return await loaded(engine)

    @pytest.fixture
    def reopen(self, reopen_engine: Callable[[], Awaitable[Engine]]) -> Callable[[], Awaitable[SqliteMessageLog]]:
        async def reopen() -> SqliteMessageLog:
            return await loaded(await reopen_engine())

        return reopen

    @pytest.fixture
    def tick(self, clock: ManualClock) -> Callable[[], None]:
        return lambda: clock.advance(0.001)
