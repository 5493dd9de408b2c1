"""The entries of `mqgate serve --demo`."""

import asyncio

from mqgate.control.registry.model import GroupSpec, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Mode

__all__ = ["demo"]


async def demo(registry: Registry) -> bool:
    """Register a demo topic in an empty data directory; return whether it is registered."""
    if registry.is_used:
        return "demo" in registry.snapshot.topics and "demo-workers" in registry.snapshot.groups
    actor = "demo"
    await registry.put_topic("demo", TopicSpec(queues=8), actor)
    await asyncio.gather(
        registry.put_producer("demo-producer", ProducerSpec(topic="demo"), actor),
        registry.put_group("demo-workers", GroupSpec(topic="demo"), actor),
        registry.put_group("demo-queue", GroupSpec(topic="demo", mode=Mode.QUEUE), actor),
        registry.put_group("demo-broadcast", GroupSpec(topic="demo", mode=Mode.BROADCAST), actor),
    )
    return True
