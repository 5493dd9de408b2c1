"""What `sub` settles of a batch, depending on how far it came."""

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
def test_a_leased_queue_is_acknowledged_as_far_as_it_was_printed(printed, due):
    """What was not shown must come again, what was shown must not."""
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
def test_messages_leased_singly_are_acknowledged_if_printed_and_else_handed_back(printed, due):
    """In message mode each receipt stands for itself."""
    batch = PrintedBatch(MESSAGE_MODE)

    batch.printed = printed

    assert batch.settlement() == due


def test_nothing_received_leaves_nothing_to_settle():
    """An empty poll carries no receipt."""
    assert PrintedBatch({"messages": []}).settlement() == PendingSettlement([], None, [])


@pytest.mark.parametrize("outcome", ["lost", "gone", "invalid"])
def test_an_ack_that_was_refused_is_reported(outcome):
    """Otherwise the reader believes that messages are done which will come again."""
    with pytest.raises(GatewayError) as caught:
        check([{"outcome": "applied"}, {"outcome": outcome}])

    assert caught.value.code == outcome


def test_an_ack_that_came_late_or_twice_is_as_good_as_applied():
    """Repeating is how a stopping `sub` makes sure."""
    check([{"outcome": "applied"}, {"outcome": "duplicate"}, {"outcome": "late_applied"}])
