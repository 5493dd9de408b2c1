"""Register, change and remove topics, producers and groups; pause and resume groups.

Data is created before its registry entry: the queues of a topic and the start offsets of a group exist before the entry
is visible. After a crash in between, registering again completes the creation.

Only a deletion drops the messages of a topic. A registration never does, because the topic may already exist on a
broker. A deletion drops the messages before it removes the entry. After a crash in between, publishes to the entry
return topic_not_found. Deleting the topic again completes the deletion; registering it again creates an empty topic.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET

from mqgate.control.audit import audit_details, audit_subject
from mqgate.control.registry import model
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.registry.model import Defaults, GroupSpec, ProducerSpec, TopicSpec
from mqgate.core.entries import ApiKey, Group, Producer, Snapshot, Topic
from mqgate.core.errors import (
    AlreadyExists,
    GroupNotFound,
    ProducerNotFound,
    RegistryChanged,
    TeamNotFound,
    TopicInUse,
    TopicNotFound,
)
from mqgate.core.events import EVENTS_TOPIC
from mqgate.core.names import check_name, retry_topic
from mqgate.ports.dead_letters import DeadLetterStore
from mqgate.ports.idempotency import IdempotencyStore
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import MessageLog
from mqgate.ports.registry_store import AuditEntry, Entry, RegistryStore
from mqgate.ports.timer_store import TimerStore


class Registry:
    def __init__(
        self,
        *,
        store: RegistryStore,
        directory: CachedDirectory,
        log: MessageLog,
        leases: LeaseStore,
        dead_letters: DeadLetterStore,
        timers: TimerStore,
        idempotency: IdempotencyStore,
        open_group: Callable[[Group], Awaitable[None]],
        close_group: Callable[[str], Awaitable[None]],
        defaults: Defaults,
        clock: Callable[[], datetime],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`catch_up` is awaited before an entry is reported as missing: another gateway may have created it."""
        self._store = store
        self._directory = directory
        self._log = log
        self._leases = leases
        self._dead_letters = dead_letters
        self._timers = timers
        self._idempotency = idempotency
        self._open_group = open_group
        self._close_group = close_group
        self._defaults = defaults
        self._clock = clock
        self._catch_up = catch_up

    @property
    def snapshot(self) -> Snapshot:
        """The last loaded version of the registry."""
        return self._directory.snapshot

    @property
    def is_used(self) -> bool:
        return self.snapshot.version > 0

    async def topic(self, name: str) -> Topic:
        if name not in self._directory.snapshot.topics:
            await self._catch_up()
        return _topic(self._directory.snapshot, name)

    async def readable(self, name: str) -> str:
        """Return the name of a topic that can be read: a registered one, or the topic of the gateway's own events."""
        return name if name == EVENTS_TOPIC else (await self.topic(name)).name

    async def producer(self, name: str) -> Producer:
        if name not in self._directory.snapshot.producers:
            await self._catch_up()
        return _producer(self._directory.snapshot, name)

    async def group(self, name: str) -> Group:
        if name not in self._directory.snapshot.groups:
            await self._catch_up()
        return _group(self._directory.snapshot, name)

    async def put_topic(self, name: str, spec: TopicSpec, actor: str, *, only_new: bool = False) -> tuple[Topic, bool]:
        """Create or change a topic. Return it, and whether it is new."""
        check_name(name, "topic")
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            old = seen.topics.get(name)
            _check_new(old, only_new=only_new)
            entry = model.decide_topic(name, spec, old, self._defaults, self._clock())
            _check_team(seen, spec)
            if old is None:
                await self._delete_topic_state(name)
            await self._log.create(name, entry.queues)
            await self._save(entry, old, actor, seen)
        return entry, old is None

    async def put_producer(
        self, name: str, spec: ProducerSpec, actor: str, *, only_new: bool = False
    ) -> tuple[Producer, bool]:
        check_name(name, "producer")
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            old = seen.producers.get(name)
            _check_new(old, only_new=only_new)
            entry = model.decide_producer(name, spec, old, self._clock())
            _topic(seen, entry.topic)
            _check_team(seen, spec)
            await self._save(entry, old, actor, seen)
        return entry, old is None

    async def put_group(self, name: str, spec: GroupSpec, actor: str, *, only_new: bool = False) -> tuple[Group, bool]:
        """Create or change a group. Return it, and whether it is new; the start offsets of a new group are set."""
        check_name(name, "group")
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            old = seen.groups.get(name)
            _check_new(old, only_new=only_new)
            if old is None and spec.topic is not UNSET:
                _topic(seen, spec.topic)
            entry = model.decide_group(name, spec, old, self._defaults, self._clock())
            _check_team(seen, spec)
            if old is None:
                await self._leases.forget(name)
                await self._log.drop(retry_topic(name))
                await self._open_group(entry)
            await self._save(entry, old, actor, seen)
        return entry, old is None

    async def patch_group(self, name: str, spec: GroupSpec, actor: str) -> Group:
        """Change an existing group."""
        await self.group(name)
        return (await self.put_group(name, spec, actor))[0]

    async def pause(self, name: str, *, is_paused: bool, reason: str | None, actor: str) -> Group:
        """Pause or resume a group. A paused group grants no leases but accepts acks."""
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            old = _group(seen, name)
            entry = replace(old, is_paused=is_paused, pause_reason=reason if is_paused else None)
            await self._save(entry, old, actor, seen, action="pause" if is_paused else "resume", reason=reason)
        return entry

    async def delete_topic(self, name: str, actor: str) -> None:
        """Remove a topic and its messages. Raise TopicInUse if it has producers or groups."""
        async with self._store.change_lock():
            seen = await self._check_unused(name)
            await self._delete_topic_state(name)
            await self._log.drop(name)
            # Again: a publish in between may have stored an idempotency key whose message is dropped by now.
            await self._delete_topic_state(name)
            while True:
                try:
                    return await self._remove(seen.topics[name], actor, seen)
                except RegistryChanged:
                    # Another gateway changed the registry. Giving up now would leave the deletion incomplete.
                    seen = await self._check_unused(name)

    async def _check_unused(self, name: str) -> Snapshot:
        snapshot = await self._directory.refresh()
        _topic(snapshot, name)
        users = [producer.name for producer in snapshot.producers.values() if producer.topic == name]
        users += [group.name for group in snapshot.groups.values() if group.topic == name]
        if users:
            raise TopicInUse(f"Delete its producers and groups first: {', '.join(sorted(users)[:10])}.", topic=name)
        return snapshot

    async def _delete_topic_state(self, topic: str) -> None:
        """Delete timers and idempotency keys, so that a later topic of the same name does not get them."""
        await self._timers.cancel_all(topic)
        await self._idempotency.forget(topic)

    async def delete_producer(self, name: str, actor: str) -> None:
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            _producer(seen, name)
            seen = await self._remove_keys(lambda key: key.producer == name, actor, seen)
            await self._remove(_producer(seen, name), actor, seen)

    async def delete_group(self, name: str, actor: str) -> None:
        """Remove a group with its offsets, dead letters and API keys."""
        async with self._store.change_lock():
            seen = await self._directory.refresh()
            _group(seen, name)
            seen = await self._remove_keys(lambda key: key.group == name, actor, seen)
            await self._remove(_group(seen, name), actor, seen)
            await self._leases.forget(name)
            await self._dead_letters.forget(name)
            await self._close_group(name)
            await self._log.drop(retry_topic(name))

    async def _remove_keys(self, belongs: Callable[[ApiKey], bool], actor: str, seen: Snapshot) -> Snapshot:
        """Remove the API keys of an entry, so that they do not grant access to a later entry of the same name.

        The entry is removed afterwards, based on the returned snapshot. So no key can be created in between.
        """
        while keys := [key for key in seen.keys.values() if belongs(key)]:
            await self._remove(keys[0], actor, seen)
            seen = self._directory.snapshot
        return seen

    async def record(self, actor: str, action: str, subject: str, reason: str | None, details: object) -> None:
        await self._store.record(self._audit_entry(actor, action, subject, reason, details))

    async def _save(
        self,
        entry: Entry,
        old: Entry | None,
        actor: str,
        seen: Snapshot,
        action: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Store an entry. Raise RegistryChanged if another gateway changed the registry after `seen` was loaded."""
        if entry == old:
            return
        action = action or ("create" if old is None else "change")
        audit_entry = self._audit_entry(actor, action, audit_subject(entry), reason, {"new": audit_details(entry)})
        await self._store.save(entry, audit_entry, decided_on=seen.version)
        await self._directory.refresh()

    async def _remove(self, entry: Entry, actor: str, seen: Snapshot) -> None:
        audit_entry = self._audit_entry(actor, "delete", audit_subject(entry), None, {"old": audit_details(entry)})
        await self._store.remove(entry, audit_entry, decided_on=seen.version)
        await self._directory.refresh()

    def _audit_entry(self, actor: str, action: str, subject: str, reason: str | None, details: object) -> AuditEntry:
        return AuditEntry(
            at=self._clock(),
            actor=actor,
            action=action,
            subject=subject,
            reason=reason,
            details=msgspec.json.encode(details).decode(),
        )


def _check_new(old: Topic | Producer | Group | None, *, only_new: bool) -> None:
    """Raise AlreadyExists if an entry that must be new exists."""
    if only_new and old is not None:
        kind = type(old).__name__
        raise AlreadyExists(f"{kind} {old.name} exists. Choose another name, or change it without If-None-Match.")


def _check_team(seen: Snapshot, spec: TopicSpec | ProducerSpec | GroupSpec) -> None:
    """Raise TeamNotFound if the given team does not exist."""
    if spec.team is not UNSET and spec.team is not None and spec.team not in seen.teams:
        raise TeamNotFound(f"Team {spec.team} does not exist. Use PUT /v1/teams/{spec.team}.", field="team")


def _topic(seen: Snapshot, name: str) -> Topic:
    return _found(seen.topics.get(name), TopicNotFound, "topic", name)


def _producer(seen: Snapshot, name: str) -> Producer:
    return _found(seen.producers.get(name), ProducerNotFound, "producer", name)


def _group(seen: Snapshot, name: str) -> Group:
    return _found(seen.groups.get(name), GroupNotFound, "group", name)


_T = TypeVar("_T", Topic, Producer, Group)


def _found(entry: _T | None, error: type[TopicNotFound | ProducerNotFound | GroupNotFound], kind: str, name: str) -> _T:
    if entry is None:
        raise error(f"{kind.capitalize()} {name} is not registered. Use PUT /v1/{kind}s/{name}.", **{kind: name})
    return entry
