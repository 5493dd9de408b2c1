"""The receipts that `sub` settles, depending on the printed messages."""

import pytest

from mqgate.cli.batch import PendingSettlement, PrintedBatch, check
from mqgate.client import GatewayError

QUEUE_MODE = {
    "messages": [{"offset": 7}, {"offset": 8}, {"offset": 9}],
    "lease": {"receipt": "r", "start": 7, "next": 10},
}
MESSAGE_MODE = {"messages": [{"receipt": "r1"}, {"receipt": "r2"}, {"receipt": "r3"}]}


@pytest.mark.parametrize(
    ("printed", "due"),
    [
        (0, PendingSettlement([], None, ["r"])),
        (1, PendingSettlement(["r"], 7, [])),
        (2, PendingSettlement(["r"], 8, [])),
        (3, PendingSettlement(["r"], None, [])),
    ],
)
def test_a_leased_queue_is_acknowledged_up_to_the_last_printed_message(printed, due):
    """Only messages that were not printed may be delivered again."""
    batch = PrintedBatch(QUEUE_MODE)

    batch.printed = printed

    assert batch.settlement() == due


@pytest.mark.parametrize(
    ("printed", "due"),
    [
        (0, PendingSettlement([], None, ["r1", "r2", "r3"])),
        (2, PendingSettlement(["r1", "r2"], None, ["r3"])),
        (3, PendingSettlement(["r1", "r2", "r3"], None, [])),
    ],
)
def test_single_messages_are_acknowledged_if_printed_and_released_otherwise(printed, due):
    """In message mode each message has its own receipt."""
    batch = PrintedBatch(MESSAGE_MODE)

    batch.printed = printed

    assert batch.settlement() == due


def test_an_empty_receive_leaves_nothing_to_settle():
    """An empty receive has no receipt."""
    assert PrintedBatch({"messages": []}).settlement() == PendingSettlement([], None, [])


@pytest.mark.parametrize("outcome", ["lost", "gone", "invalid"])
def test_a_refused_ack_is_reported(outcome):
    """The user must know that the messages will be delivered again."""
    with pytest.raises(GatewayError) as caught:
        check([{"outcome": "applied"}, {"outcome": outcome}])

    assert caught.value.code == outcome


def test_a_late_or_repeated_ack_counts_as_applied():
    """A stopping `sub` repeats its last ack."""
    check([{"outcome": "applied"}, {"outcome": "duplicate"}, {"outcome": "late_applied"}])
