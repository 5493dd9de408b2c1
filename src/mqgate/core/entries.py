"""Registered entries: topics, producers, groups, API keys, accounts and teams, and a snapshot of all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from mqgate.core.backoff import Backoff


class Mode(StrEnum):
    """The delivery mode of a group. It is set when the group is registered."""

    QUEUE = "queue"
    BROADCAST = "broadcast"
    MESSAGE = "message"


class OnPoison(StrEnum):
    """What happens to an exhausted message: it becomes a dead letter, or it blocks its queue."""

    DEAD = "dead"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: `rate` messages per second, `burst` at once."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    queues: int
    retention: timedelta | None
    retention_bytes: int | None
    created_at: datetime
    # The team that owns the entry.
    team: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    name: str
    topic: str
    rate_limit: RateLimit | None
    created_at: datetime
    team: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    name: str
    topic: str
    mode: Mode
    start: str
    visibility: timedelta
    max_attempts: int
    backoff: Backoff
    on_poison: OnPoison
    rate_limit: RateLimit | None
    client_ttl: timedelta
    created_at: datetime
    max_in_flight: int = 10_000
    tags: frozenset[str] = frozenset()
    is_ordered: bool = False
    is_paused: bool = False
    pause_reason: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored API key: its hash, and what it grants access to (one of producer, group, role)."""

    id: str
    digest: str = field(repr=False)
    producer: str | None
    group: str | None
    role: str | None
    created_at: datetime
    expires_at: datetime | None
    # Free text that tells keys apart, and the account or team that is responsible for the key.
    name: str = ""
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A person who may sign in. The role selects a column of the permission table."""

    name: str
    role: str
    teams: frozenset[str]
    # argon2id; empty: nobody can sign in with a password.
    password_hash: str = field(repr=False)
    is_disabled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Accounts that own topics, producers and groups together. The members are found in the accounts."""

    name: str
    description: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole registry at one version. Snapshots are replaced, never changed."""

    version: int
    topics: Mapping[str, Topic]
    producers: Mapping[str, Producer]
    groups: Mapping[str, Group]
    keys: Mapping[str, ApiKey]
    accounts: Mapping[str, Account] = field(default_factory=dict)
    teams: Mapping[str, Team] = field(default_factory=dict)


EMPTY = Snapshot(version=0, topics={}, producers={}, groups={}, keys={})
