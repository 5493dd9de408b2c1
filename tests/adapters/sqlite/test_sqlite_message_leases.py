"""The lease store of the embedded engine in message mode."""

from typing import Any

import pytest

from mqgate.adapters.sqlite import message_leases
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.testing.leasing import ask, opened
from mqgate.testing.message_lease_contract import MessageLeaseContract
from mqgate.testing.message_leasing import report_pulled, workers
from mqgate.testing.samples import queues


class TestSqliteMessageLeases(MessageLeaseContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteLeaseStore:
        return SqliteLeaseStore(engine)


async def test_an_attempt_does_not_read_filtered_messages_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that searches for a rare tag would become slower with every step."""
    store, group = SqliteLeaseStore(engine), workers(tags=frozenset("a"))
    await opened(store, group, queues(50))
    read: list[Any] = []
    granted = message_leases.granted

    def counted(row: tuple[Any, ...]) -> Any:
        read.append(row)
        return granted(row)

    monkeypatch.setattr(message_leases, "granted", counted)

    for _ in range(50):
        await report_pulled(store, group, await ask(store, group, max_count=1, attempt="a1"), {})

    assert read == []
