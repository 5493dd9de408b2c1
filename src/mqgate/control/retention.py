"""Applies the retention of topics to a log that does not delete messages itself."""

from collections.abc import Mapping
from datetime import timedelta

from mqgate.core.entries import Topic
from mqgate.core.names import retry_topic
from mqgate.ports.directory import Directory
from mqgate.ports.retention import RetentionStore

__all__ = ["Retention"]

_NONE: Mapping[str, timedelta] = {}


class Retention:
    """Retention by age and by size. `own`: retention of the gateway's own topics, which are in no registry."""

    def __init__(self, store: RetentionStore, directory: Directory, own: Mapping[str, timedelta] = _NONE) -> None:
        self._store = store
        self._directory = directory
        self._own = own

    async def run_once(self) -> int:
        """Delete the messages that their topics no longer retain. Return their number."""
        deleted = 0
        for name in self._own.keys() & set(self._store.topics()):
            deleted += await self._store.delete_older(name, self._own[name])
        for name, topic in self._rules().items():
            if topic.retention is not None:
                deleted += await self._store.delete_older(name, topic.retention)
            if topic.retention_bytes is not None:
                deleted += await self._store.delete_excess(name, topic.retention_bytes)
        return deleted

    def _rules(self) -> dict[str, Topic]:
        """Return the topic whose rules apply to each log: a private topic of a group follows the group's topic."""
        snapshot = self._directory.snapshot
        rules = dict(snapshot.topics)
        for group in snapshot.groups.values():
            rules[retry_topic(group.name)] = snapshot.topics[group.topic]
        return {name: rules[name] for name in self._store.topics() if name in rules}
