"""Latency histograms: minutes add up to hours exactly, and quantiles can be computed from any sum.

Bucket b counts whole milliseconds above 2**((b-1)/2) up to 2**(b/2). Each bucket is wider than the previous one by
the square root of 2. Bucket 0 counts 0 and 1 ms. Bucket 59, the last one, counts everything above six days.
"""

from collections.abc import Mapping, Sequence

__all__ = ["MAX_BUCKET", "bucket_of", "quantiles", "upper_ms"]

MAX_BUCKET = 59
_MAX_MS = 1 << 30


def bucket_of(ms: int) -> int:
    """Return the bucket of a latency. A negative latency, caused by clock differences, counts as 0."""
    if ms <= 1:
        return 0
    # ms <= 2**(b/2) is ms*ms <= 2**b. Without rounding, the Spark expression returns exactly the same bucket.
    return min((min(ms, _MAX_MS) ** 2 - 1).bit_length(), MAX_BUCKET)


def upper_ms(bucket: int) -> float:
    """Return the largest latency of a bucket. The bound of the last bucket is nominal."""
    return float(2 ** (bucket / 2))


def quantiles(counts: Mapping[int, int], wanted: Sequence[float]) -> list[float | None]:
    """Return the latency in ms of each quantile, interpolated linearly within its bucket; None without counts."""
    total = sum(counts.values())
    if not total:
        return [None] * len(wanted)
    return [_quantile(counts, share * total) for share in wanted]


def _quantile(counts: Mapping[int, int], rank: float) -> float:
    seen = 0
    for bucket in sorted(counts):
        count = counts[bucket]
        if count and seen + count >= rank:
            low = upper_ms(bucket - 1) if bucket else 0.0
            return low + (upper_ms(bucket) - low) * max(0.0, rank - seen) / count
        seen += count
    return upper_ms(max(counts))
