"""Differential test: the Redis and SQLite lease stores return the same result for every step of a random run.

The scripts and the SQL are independent implementations; where they differ, one of them is wrong. The contracts and the
model tests of tests/scenarios define the correct results. Here every member of every result is compared, also members
that no client sees, such as epochs, retry times and exhausted messages.
"""

from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test
from twin_machine import CLIENTS, RULES, TwinMachine
from twin_stores import Twins

from mqgate.adapters.redis import lease_store
from mqgate.adapters.sqlite import message_leases
from mqgate.stack import Stack

SPAN = 12


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["queue", "broadcast", "plain", "ordered", "filtered"])
def test_every_result_is_the_same(redis: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """An application must behave the same after a move from the embedded to the distributed deployment."""
    for store in (message_leases, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", SPAN)
    max_clients = len(CLIENTS) - (kind == "broadcast")
    twins = Twins(tmp_path / "data", redis.redis_url, max_clients)
    try:
        run_state_machine_as_test(lambda: TwinMachine(twins, kind), settings=RULES)
    finally:
        twins.close()
