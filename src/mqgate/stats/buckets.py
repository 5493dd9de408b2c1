"""Latencies as counts by bucket, so that minutes add up to hours exactly, and quantiles come out of any sum of them.

Bucket b holds whole milliseconds above 2**((b-1)/2) up to 2**(b/2): each is wider than the one before by the square
root of 2. Bucket 0 holds 0 and 1 ms; bucket 59, the last, everything above six days.
"""

from collections.abc import Mapping, Sequence

__all__ = ["LAST", "bucket_of", "quantiles", "upper_ms"]

LAST = 59
_LARGEST_MS = 1 << 30


def bucket_of(ms: int) -> int:
    """The bucket of a latency; a negative one, which clocks that differ can make, counts as none."""
    if ms <= 1:
        return 0
    # ms <= 2**(b/2) is ms*ms <= 2**b: no rounding anywhere, so that Spark's expression can be the same to the last bit.
    return min((min(ms, _LARGEST_MS) ** 2 - 1).bit_length(), LAST)


def upper_ms(bucket: int) -> float:
    """The largest latency of a bucket; of the last one the bound is only nominal."""
    return float(2 ** (bucket / 2))


def quantiles(counts: Mapping[int, int], wanted: Sequence[float]) -> list[float | None]:
    """Latencies in ms below which these shares lie, taken as evenly spread within their bucket; None: no counts."""
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
