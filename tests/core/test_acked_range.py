"""The acks of a whole range read like a list of settlements."""

from mqgate.core.acked_range import AckedRange
from mqgate.core.lease import Lease, Settlement, Verb

LEASE = Lease("workers", "", "local:0", 10, 13, 5, "0011223344556677")
RANGE = AckedRange(LEASE, ["a", "b", "c"])
SINGLE = [
    Settlement(Verb.ACK, LEASE._replace(start=offset, next=offset + 1), receipt=receipt)
    for offset, receipt in zip((10, 11, 12), "abc", strict=True)
]


def test_a_range_has_one_ack_per_message() -> None:
    """Events and stores that settle single messages read it as a sequence."""
    assert list(RANGE) == SINGLE
    assert len(RANGE) == 3
    assert RANGE[-1] == SINGLE[-1]
    assert RANGE[1:] == SINGLE[1:]
