"""Names, backoff, token buckets, ids and slots."""

import random
import subprocess
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import RateLimit
from mqgate.core.errors import InvalidValue
from mqgate.core.message import new_id, slot_of
from mqgate.core.names import check_client, check_name, check_text
from mqgate.core.tokens import Bucket

DICE = random.Random(1)


@pytest.mark.parametrize("name", ["a", "Z-9_", "x" * 100])
def test_valid_names_are_accepted(name: str) -> None:
    """Names must be valid in all engines."""
    assert check_name(name, "topic") == name


@pytest.mark.parametrize("name", ["", "x" * 101, "a.b", "ä", "a b", "a\n", "mqgate_x", "%RETRY%x"])
def test_invalid_and_reserved_names_are_rejected(name: str) -> None:
    """Reserved names belong to the topics of the gateway."""
    with pytest.raises(InvalidValue):
        check_name(name, "topic")


@pytest.mark.parametrize("client", ["", "x" * 129, "a\tb", "a\x7f", "\u200b", "\ud800"])
def test_a_client_id_must_be_printable(client: str) -> None:
    """Client ids are shown to operators and joined into receipts."""
    with pytest.raises(InvalidValue):
        check_client(client)


def test_texts_that_rocketmq_cannot_store_are_rejected() -> None:
    """U+0001 and U+0002 separate the properties of RocketMQ, and it drops empty ones."""
    assert check_text("a\x00\x03ü", "key") == "a\x00\x03ü"
    for text in ("", "\x01", "a\x02"):
        with pytest.raises(InvalidValue):
            check_text(text, "key")


def test_an_exponential_backoff_doubles_up_to_its_maximum() -> None:
    """The defaults are 1 s, factor 2, at most 10 min."""
    plain = Backoff(jitter=0)

    waits = [plain.delay(failures, DICE).total_seconds() for failures in (1, 2, 3, 10, 11, 1_000)]

    assert waits == [1, 2, 4, 512, 600, 600]


@given(st.integers(1, 1_000), st.randoms(use_true_random=False))
def test_jitter_stays_within_20_percent(failures: int, dice: random.Random) -> None:
    """Retries must be spread, but not outside the documented range."""
    plain = Backoff(jitter=0).delay(failures, dice)

    assert plain * 0.8 <= Backoff().delay(failures, dice) <= plain * 1.2


def test_a_list_of_delays_has_no_jitter_and_its_last_entry_repeats() -> None:
    """The operator chose these delays."""
    steps = (timedelta(seconds=1), timedelta(minutes=5))

    assert [Backoff(steps=steps).delay(failures, DICE) for failures in (1, 2, 3, 99)] == [*steps, steps[1], steps[1]]
    assert NO_BACKOFF.delay(7, DICE) == timedelta(0)


@given(
    rate=st.floats(0.1, 10_000),
    burst=st.floats(1, 10_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 50)), max_size=50),
)
def test_a_bucket_never_gives_more_than_burst_plus_rate(
    rate: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    """Invariant 22 must hold for any sequence of waits and requests."""
    limit = RateLimit(rate=rate, burst=burst)
    bucket, now, given = Bucket.full(limit, 0), 0, 0

    for wait, wish in steps:
        now += wait
        bucket = bucket.at(limit, now)
        taken = min(wish, int(bucket.tokens))
        bucket = bucket.take(taken)
        given += taken

        assert given <= burst + rate * now / 1_000 + 1e-6


def test_a_clock_that_moves_backwards_refills_nothing() -> None:
    """No interval may be counted twice."""
    limit = RateLimit(rate=1_000, burst=10)
    empty = Bucket.full(limit, 5_000).take(10)

    assert empty.at(limit, 1_000).tokens == 0
    assert empty.at(limit, 1_000).at(limit, 5_005).tokens == 5


def test_ids_are_unique_and_ordered_by_time() -> None:
    """An index of ids must grow at its end."""
    ids = [new_id(ms) for ms in range(1_000, 2_000)]

    assert ids == sorted(set(ids))
    assert {len(message_id) for message_id in ids} == {32}


def test_ids_are_unique_in_a_forked_child() -> None:
    """A forked child has the memory of its parent and would continue with the same numbers."""
    program = "import os; from mqgate.core import message as m; m.new_id(1); os.fork() and os.wait(); "
    program += "print(*map(m.new_id, [1] * 99))"

    ids = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()  # noqa: S603 - ours

    assert len(set(ids)) == len(ids) == 2 * 99


def test_the_slot_of_a_key_is_the_same_in_every_release() -> None:
    """Messages of one key must stay in one queue after an upgrade of the gateway."""
    assert [slot_of(key) for key in ("a", "order-1", "ключ")] == [3_904_355_907, 3_769_860_079, 212_833_818]
