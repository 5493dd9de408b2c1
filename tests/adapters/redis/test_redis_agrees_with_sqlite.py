"""Redis and SQLite give the same answers, step by step, whatever Hypothesis plays: consumers, operators, brokers, time.

The scripts and the SQL were written apart; where they differ, one of them is wrong. What each answer must be is told
by the contracts and by the model tests of tests/scenarios; here every member of every answer counts, also those that
no client sees: epochs, when it is worth trying again, what must die.
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
def test_every_answer_is_the_same(redis: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whoever moves from the embedded engine to the production set finds the same product."""
    for store in (message_leases, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", SPAN)
    most_clients = len(CLIENTS) - (kind == "broadcast")
    twins = Twins(tmp_path / "data", redis.redis_url, most_clients)
    try:
        run_state_machine_as_test(lambda: TwinMachine(twins, kind), settings=RULES)
    finally:
        twins.close()
