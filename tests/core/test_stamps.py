"""Times in receipts: what was signed at one gateway is read at another, and what is missing is unknown."""

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
    """When the lease began, and when each of its messages was stored, by what a receipt tells."""
    token, _, rest = receipt.partition(".")
    return granted_at(token), [stored_at(rest)] if rest else list(stored_at_each(token, count))


def batch(stored: list[int], began: int = BEGAN) -> str:
    """The receipt of a batch whose messages were stored then."""
    lease = Lease("workers", "", "local:0", 10, 10 + len(stored), 5, "0011223344556677")
    return KEYS.sign(lease, stamps(instant(began), stored))


def message(part: str, token_stamps: str = stamps(instant(BEGAN))) -> str:
    lease = Lease("workers", "", "local:0", 10, 14, 5, "0011223344556677")
    return KEYS.sign_each(lease, token_stamps, [part])[0]


@given(began=MILLISECONDS, stored=st.lists(MILLISECONDS, min_size=1, max_size=9))
def test_a_batch_of_up_to_nine_carries_every_time(began: int, stored: list[int]) -> None:
    """In any order and on either side of the lease's begin: a broker's clock is not the lease store's."""
    assert times_of(batch(stored, began), len(stored)) == (began, stored)


def test_a_larger_batch_is_on_the_lines_between_nine_times() -> None:
    """First and last are exact, the others as if they had been stored evenly: a receipt cannot grow with its batch."""
    stored = [BEGAN + 10 * number for number in range(1_000)]
    uneven = [BEGAN] * 500 + [BEGAN + 8_000] * 500

    even = times_of(batch(stored), 1_000)[1]
    bent = times_of(batch(uneven), 1_000)[1]

    assert even == stored
    assert (bent[0], bent[-1]) == (BEGAN, BEGAN + 8_000)
    assert bent == sorted(each for each in bent if each is not None)
    assert all(at == real for at, real in zip(bent[:499] + bent[624:], uneven[:499] + uneven[624:], strict=True))
    assert len(batch(uneven)) < 250


def test_a_message_carries_its_own_time() -> None:
    """The token has the begin of the lease; the message's time stands behind its offset."""
    (part,) = of_messages([12], [BEGAN - 5_000])

    assert times_of(message(part), 1) == (BEGAN, [BEGAN - 5_000])


def test_what_is_missing_or_makes_no_sense_is_unknown() -> None:
    """Receipts of the release before have no times, and nobody checked what stands behind their second dot."""
    lease = Lease("workers", "", "local:0", 10, 14, 5, "0011223344556677")

    for tail in ("", ".", ".-1", ".+1", ".x y", ".1_0", ".nonsense", "." + "f" * 1_000):
        token = message("12").partition(".")[0]
        assert times_of(f"{token}.12{tail}", 1) == (BEGAN, [None]), tail
    assert times_of(KEYS.sign(lease), 4) == (None, [None] * 4)
    assert times_of(message("12", "").rpartition(".")[0], 1) == (None, [None])
    assert times_of(KEYS.sign(lease, stamps(instant(BEGAN))), 4) == (BEGAN, [None] * 4)


def test_an_instant_is_stamped_to_the_millisecond() -> None:
    """What lies below a millisecond no store keeps."""
    assert stamps(instant(BEGAN) + timedelta(microseconds=999)) == f"{BEGAN:x}"
