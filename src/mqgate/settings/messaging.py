"""Topics, groups and publishing."""

from dataclasses import dataclass
from datetime import timedelta

from mqgate.settings.option import option

__all__ = ["GroupSettings", "PublishSettings", "TopicSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    queues: int = option(8, "number of queues of a topic, unless the topic sets it")
    max_queues: int = option(1_024, "maximum number of queues of a topic")
    retention: timedelta = option(timedelta(days=3), "time that messages are kept, unless the topic sets it")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    visibility: timedelta = option(timedelta(seconds=30), "length of a lease, unless the group or the request sets it")
    max_attempts: int = option(16, "number of deliveries before a message is dead-lettered, unless the group sets it")
    client_ttl: timedelta = option(
        timedelta(days=1), "time after which an idle broadcast client is deleted, unless the group sets it"
    )
    max_clients: int = option(1_000, "maximum number of broadcast clients of a group")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    longest_delay: timedelta = option(timedelta(days=730), "maximum delay of a message")
    idempotency_window: timedelta = option(timedelta(minutes=10), "time that an idempotency key is kept")
