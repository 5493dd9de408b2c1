"""The contract of message logs on the embedded engine, read from memory, from the database, and from both."""

from collections.abc import Awaitable, Callable

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.testing.clock import ManualClock
from mqgate.testing.message_log_contract import MessageLogContract


async def loaded(engine: Engine, max_tail_bytes: int) -> SqliteMessageLog:
    log = SqliteMessageLog(engine, max_tail_bytes=max_tail_bytes)
    await log.load()
    return log


@pytest.mark.parametrize("max_tail_bytes", [1 << 20, 0, 1_500])
class TestSqliteMessageLog(MessageLogContract):
    @pytest.fixture
    async def log(self, engine: Engine, max_tail_bytes: int) -> SqliteMessageLog:
        return await loaded(engine, max_tail_bytes)

    @pytest.fixture
    def reopen(
        self, reopen_engine: Callable[[], Awaitable[Engine]], max_tail_bytes: int
    ) -> Callable[[], Awaitable[SqliteMessageLog]]:
        async def reopen() -> SqliteMessageLog:
            return await loaded(await reopen_engine(), max_tail_bytes)

        return reopen

    @pytest.fixture
    def tick(self, clock: ManualClock) -> Callable[[], None]:
        return lambda: clock.advance(0.001)
