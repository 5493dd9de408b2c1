"""The number of queues of a topic on each broker.

The queues of a topic are counted over all brokers, as on the embedded engine, and spread evenly. A layout only grows: a
topic keeps the queues that it has, and new ones are added on the brokers with the fewest.
"""

from collections.abc import Mapping, Sequence
from zlib import crc32

__all__ = ["per_broker", "spread"]


def spread(layout: Mapping[str, int], brokers: Sequence[str], queues: int, topic: str) -> dict[str, int]:
    """Return the layout after queues were added until the topic has `queues` in total.

    `layout` may contain brokers that are down. Only `brokers` get new queues. Where several have the fewest, the name
    of the topic decides, so that topics with few queues are not all on the first broker.
    """
    grown = {**dict.fromkeys(brokers, 0), **layout}
    ordered = sorted(brokers)
    first = crc32(topic.encode()) % len(ordered)
    ordered = ordered[first:] + ordered[:first]
    for _ in range(queues - sum(layout.values())):
        grown[min(ordered, key=grown.__getitem__)] += 1
    return grown


def per_broker(layout: Mapping[str, int], brokers: Sequence[str], queues: int) -> dict[str, int]:
    """Return the layout after each of `brokers` was given `queues` queues."""
    return {**layout, **{broker: max(layout.get(broker, 0), queues) for broker in brokers}}
