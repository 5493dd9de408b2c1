"""Latency buckets: exact bounds and sums, and the error of a quantile."""

import random

import pytest

from mqgate.stats.buckets import MAX_BUCKET, bucket_of, quantiles, upper_ms


def test_a_latency_is_within_the_bounds_of_its_bucket() -> None:
    """The bounds are documented and drawn by dashboards, so none may be off by one."""
    for ms in (*range(2_000), 2**20 - 1, 2**20, 2**20 + 1, 2**29, 2**29 + 1, 2**40):
        bucket = bucket_of(ms)

        assert ms <= upper_ms(bucket) or bucket == MAX_BUCKET
        assert bucket == 0 or ms > upper_ms(bucket - 1)


def test_a_negative_latency_counts_as_zero() -> None:
    """Two clocks can differ by a millisecond, and the message must still be counted."""
    assert bucket_of(-5) == 0


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99, 1.0])
def test_a_quantile_is_within_its_bucket(share: float) -> None:
    """Operators rely on the documented error: at most a factor of the square root of 2."""
    found = random.Random(7)
    values = sorted(int(found.lognormvariate(5, 1.5)) for _ in range(10_000))
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1

    (estimate,) = quantiles(counts, [share])

    true = values[min(int(share * len(values)), len(values) - 1)]
    assert estimate is not None
    assert abs(bucket_of(round(estimate)) - bucket_of(true)) <= 1


def test_without_counts_there_is_no_quantile() -> None:
    """A result of zero would look like a very low latency."""
    assert quantiles({}, [0.5, 0.99]) == [None, None]
