"""The lease store of the embedded engine in message mode."""

import pytest

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.core.backoff import Backoff
from mqgate.core.lease import SettlementOutcome, Verb
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ack, ask, nack, opened, position, settled
from mqgate.testing.message_lease_contract import MessageLeaseContract
from mqgate.testing.message_leasing import HOUR, in_turn, one, report_pulled, taken, workers
from mqgate.testing.samples import queues


class TestSqliteMessageLeases(MessageLeaseContract):
    @pytest.fixture
    def store(self, engine: Engine) -> SqliteLeaseStore:
        return SqliteLeaseStore(engine)


async def test_an_attempt_keeps_nothing_of_what_a_filter_did_not_keep(engine: Engine) -> None:
    """Grants of an attempt stay in memory. An attempt that looks for a rare tag would collect thousands of them."""
    store, group = SqliteLeaseStore(engine), workers(tags=frozenset("a"))
    await opened(store, group, queues(50))

    for _ in range(50):
        await report_pulled(store, group, await ask(store, group, max_count=1, attempt="a1"), {})

    rows = await engine.read(lambda view: view.all("SELECT epoch FROM message_grant WHERE attempt IS NOT NULL"))
    assert rows == []


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.EXTEND])
async def test_a_receipt_whose_grant_is_no_longer_in_memory_has_the_same_outcome(
    engine: Engine, clock: ManualClock, verb: Verb
) -> None:
    """Only the newest grants are kept in memory; older ones are read when a receipt names them."""
    store, group = SqliteLeaseStore(engine), workers(backoff=Backoff(steps=(HOUR,)))
    await opened(store, group, queues(2_000))
    late, acked = await taken(store, group, max_count=2)
    await ack(store, group, acked)
    clock.advance(group.visibility)
    for _ in range(1_200):
        await ack(store, group, await one(store, group))

    outcomes = [(await settled(store, group, verb, lease, delay=HOUR)).outcome for lease in (late, acked, acked)]

    repeated = SettlementOutcome.DUPLICATE if verb is Verb.ACK else SettlementOutcome.LOST
    assert outcomes == [SettlementOutcome.LATE_APPLIED, repeated, repeated]


async def test_state_that_was_unloaded_is_loaded_again(engine: Engine, clock: ManualClock) -> None:
    """Memory is bounded by the groups in use, and nothing of the others may be lost."""
    store = SqliteLeaseStore(engine)
    group = workers(is_ordered=True, visibility=HOUR, backoff=Backoff(steps=(HOUR,)))
    keys = {0: "k", 1: "k", 2: "l", 3: None, 4: "k"}
    await opened(store, group, queues(5))
    leases = await report_pulled(store, group, await ask(store, group, attempt="a1"), keys)
    await nack(store, group, leases[1])
    before = await position(store, group)
    clock.advance(1_200)

    await store.tidy()
    is_unloaded = store.memory.scopes == 0
    after = await position(store, group)
    again = await ask(store, group, attempt="a2")

    assert is_unloaded
    assert after == before
    assert not again.grants
    assert await ack(store, group, leases[0]) is SettlementOutcome.APPLIED
    assert await in_turn(store, group, keys) == [1]
