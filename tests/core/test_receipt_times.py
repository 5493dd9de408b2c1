"""Receipt times are readable at every gateway, and unknown if missing or malformed."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.lease import Lease
from mqgate.core.message import instant
from mqgate.core.receipt import ReceiptKeys, SigningKeys
from mqgate.core.receipt_times import granted_at, of_messages, stamps, stored_at, stored_at_each

KEYS = ReceiptKeys(SigningKeys({1: b"k" * 32}, 1))
BEGAN = 1_700_000_000_000
MILLISECONDS = st.integers(0, 4_102_444_800_000)


def times_of(receipt: str, count: int) -> tuple[int | None, list[int | None]]:
    """Return the grant time and the store times that a receipt carries."""
    token, _, rest = receipt.partition(".")
    return granted_at(token), [stored_at(rest)] if rest else list(stored_at_each(token, count))


def batch(stored: list[int], began: int = BEGAN) -> str:
    """Return the receipt of a batch with these store times."""
    lease = Lease("workers", "", "local:0", 10, 10 + len(stored), 5, "0011223344556677")
    return KEYS.sign(lease, stamps(instant(began), stored))


def message(part: str, token_stamps: str = stamps(instant(BEGAN))) -> str:
    lease = Lease("workers", "", "local:0", 10, 14, 5, "0011223344556677")
    return KEYS.sign_each(lease, token_stamps, [part])[0]


@given(began=MILLISECONDS, stored=st.lists(MILLISECONDS, min_size=1, max_size=9))
def test_a_batch_of_up_to_nine_messages_carries_every_store_time(began: int, stored: list[int]) -> None:
    """Store times may be in any order and after the grant time: the clocks of broker and lease store differ."""
    assert times_of(batch(stored, began), len(stored)) == (began, stored)


def test_store_times_of_a_larger_batch_are_interpolated() -> None:
    """A receipt must not grow with its batch. The first and the last time are exact."""
    stored = [BEGAN + 10 * number for number in range(1_000)]
    uneven = [BEGAN] * 500 + [BEGAN + 8_000] * 500

    even = times_of(batch(stored), 1_000)[1]
    bent = times_of(batch(uneven), 1_000)[1]

    assert even == stored
    assert (bent[0], bent[-1]) == (BEGAN, BEGAN + 8_000)
    assert bent == sorted(time for time in bent if time is not None)
    assert all(at == real for at, real in zip(bent[:499] + bent[624:], uneven[:499] + uneven[624:], strict=True))
    assert len(batch(uneven)) < 250


def test_the_receipt_of_a_message_carries_its_store_time() -> None:
    """The token of a range carries only the grant time."""
    (part,) = of_messages([12], [BEGAN - 5_000])

    assert times_of(message(part), 1) == (BEGAN, [BEGAN - 5_000])


def test_missing_or_malformed_times_are_unknown() -> None:
    """Receipts of the previous release have no times, and text after their offset was not checked."""
    lease = Lease("workers", "", "local:0", 10, 14, 5, "0011223344556677")

    for tail in ("", ".", ".-1", ".+1", ".x y", ".1_0", ".nonsense", "." + "f" * 1_000):
        token = message("12").partition(".")[0]
        assert times_of(f"{token}.12{tail}", 1) == (BEGAN, [None]), tail
    assert times_of(KEYS.sign(lease), 4) == (None, [None] * 4)
    assert times_of(message("12", "").rpartition(".")[0], 1) == (None, [None])
    assert times_of(KEYS.sign(lease, stamps(instant(BEGAN))), 4) == (BEGAN, [None] * 4)


def test_times_have_millisecond_precision() -> None:
    """No store keeps a higher precision."""
    assert stamps(instant(BEGAN) + timedelta(microseconds=999)) == f"{BEGAN:x}"
