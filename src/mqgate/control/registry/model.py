"""The settings of topics, producers and groups, and their validation.

An omitted member keeps its stored value (on creation: its default). Null removes a limit. The same structures are read
from HTTP requests and from mqgate.toml.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import Group, Mode, OnPoison, Producer, RateLimit, Topic
from mqgate.core.errors import FixedSetting, InvalidValue, QueuesOnlyGrow, UnsupportedByEngine, UnsupportedByMode
from mqgate.core.lease import MAX_HOLD
from mqgate.core.names import check_text
from mqgate.core.times import format_instant, parse_duration, parse_instant

Duration = Annotated[
    int | float | str,
    Meta(description="A number of seconds, or text such as 1500ms, 30s, 15m, 2h, 10d.", examples=["30s", 1.5]),
]
Instant = Annotated[
    int | str,
    Meta(description="RFC 3339 with zone, or milliseconds since 1970.", examples=["2026-01-31T12:00:00Z"]),
]
_MIN_VISIBILITY = timedelta(seconds=1)
_MAX_ATTEMPTS = 1_000
# At the minimum rate a message waits about 12 days. Longer waits would overflow the clocks.
_MIN_RATE, _MAX_RATE = 0.000_001, 1_000_000_000.0
_MAX_BACKOFF_STEPS = 100
_MAX_TAGS = 100
_MAX_IN_FLIGHT = 1_000_000


class TopicSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    queues: int | UnsetType = UNSET
    retention: Duration | None | UnsetType = UNSET
    retention_bytes: int | None | UnsetType = UNSET
    team: str | None | UnsetType = UNSET


class RateSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    rate: float
    burst: float | UnsetType = UNSET


class ProducerSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    topic: str | UnsetType = UNSET
    rate_limit: float | RateSpec | None | UnsetType = UNSET
    team: str | None | UnsetType = UNSET


class BackoffSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    initial: Duration = 1
    factor: float = 2
    max: Duration = 600
    jitter: float = 0.2


class FilterSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    tags: list[str]


class GroupSpec(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    topic: str | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    start: Instant | UnsetType = UNSET
    visibility: Duration | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    backoff: BackoffSpec | list[Duration] | UnsetType = UNSET
    on_poison: OnPoison | UnsetType = UNSET
    filter: FilterSpec | None | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    max_in_flight: int | UnsetType = UNSET
    rate_limit: float | RateSpec | None | UnsetType = UNSET
    client_ttl: Duration | UnsetType = UNSET
    team: str | None | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Default values and limits."""

    queues: int = 8
    max_queues: int = 1_024
    retention: timedelta | None = timedelta(days=3)
    # RocketMQ brokers have their own retention.
    has_retention: bool = True
    visibility: timedelta = timedelta(seconds=30)
    max_attempts: int = 16
    client_ttl: timedelta = timedelta(days=1)


def decide_topic(name: str, spec: TopicSpec, old: Topic | None, defaults: Defaults, now: datetime) -> Topic:
    base = old or Topic(
        name=name, queues=defaults.queues, retention=defaults.retention, retention_bytes=None, created_at=now
    )
    changes: dict[str, Any] = {}
    if spec.queues is not UNSET:
        if not 1 <= spec.queues <= defaults.max_queues:
            raise InvalidValue(f"queues must be 1 to {defaults.max_queues}", field="queues", limit=defaults.max_queues)
        if old is not None and spec.queues < old.queues:
            raise QueuesOnlyGrow(f"Topic {name} has {old.queues} queues. Use the same number or more.", field="queues")
        changes["queues"] = spec.queues
    if not defaults.has_retention:
        _reject_retention(spec)
    if spec.retention is not UNSET:
        changes["retention"] = None if spec.retention is None else _retention(spec.retention)
    if spec.retention_bytes is not UNSET:
        if spec.retention_bytes is not None and not 1 <= spec.retention_bytes < 1 << 62:
            raise InvalidValue("retentionBytes must be at least 1, or null for no limit", field="retentionBytes")
        changes["retention_bytes"] = spec.retention_bytes
    if spec.team is not UNSET:
        changes["team"] = spec.team
    return replace(base, **changes)


def _reject_retention(spec: TopicSpec) -> None:
    for field, given in (("retention", spec.retention), ("retentionBytes", spec.retention_bytes)):
        if given is not UNSET and given is not None:
            raise UnsupportedByEngine(
                "RocketMQ brokers set the retention (fileReservedTime). Omit this member.", field=field
            )


def _retention(value: float | str) -> timedelta:
    retention = parse_duration(value, "retention")
    if not retention:
        raise InvalidValue("retention must be greater than 0, or null to keep messages forever", field="retention")
    return retention


def decide_producer(name: str, spec: ProducerSpec, old: Producer | None, now: datetime) -> Producer:
    topic = _fixed("topic", spec.topic, old.topic if old else None)
    base = old or Producer(name=name, topic=topic, rate_limit=None, created_at=now)
    if spec.rate_limit is not UNSET:
        base = replace(base, rate_limit=decide_rate(spec.rate_limit))
    return base if spec.team is UNSET else replace(base, team=spec.team)


def decide_rate(spec: float | RateSpec | None) -> RateLimit | None:
    if spec is None:
        return None
    rate = spec.rate if isinstance(spec, RateSpec) else spec
    burst = spec.burst if isinstance(spec, RateSpec) and spec.burst is not UNSET else max(rate, 1.0)
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise InvalidValue(
            f"rateLimit must be {_MIN_RATE:f} to {_MAX_RATE:.0f} messages per second, or null for no limit",
            field="rateLimit",
            limit=_MAX_RATE,
        )
    if not 1 <= burst <= _MAX_RATE:
        raise InvalidValue(f"rateLimit.burst must be 1 to {_MAX_RATE:.0f} messages", field="rateLimit.burst")
    return RateLimit(rate=rate, burst=burst)


def decide_group(name: str, spec: GroupSpec, old: Group | None, defaults: Defaults, now: datetime) -> Group:
    given = Mode.MESSAGE if old is None and spec.mode is UNSET else spec.mode
    mode = Mode(_fixed("mode", given, old.mode if old else None))
    _reject_unsupported(spec, mode)
    base = old or Group(
        name=name,
        topic=_fixed("topic", spec.topic, None),
        mode=mode,
        start="latest" if mode is Mode.BROADCAST else "earliest",
        visibility=defaults.visibility,
        max_attempts=defaults.max_attempts,
        # By default a released queue can be leased again immediately; single messages back off.
        backoff=Backoff() if mode is Mode.MESSAGE else NO_BACKOFF,
        on_poison=OnPoison.DEAD,
        rate_limit=None,
        client_ttl=defaults.client_ttl,
        created_at=now,
    )
    _fixed("topic", spec.topic, base.topic)
    if old is not None:
        _fixed("start", UNSET if spec.start is UNSET else _start(spec.start), old.start)
        if spec.ordered not in {UNSET, old.is_ordered}:
            raise FixedSetting("ordered cannot be changed while messages are in flight", field="ordered")
    changes: dict[str, Any] = {name: rule(given) for name, given, rule in _group_rules(spec) if given is not UNSET}
    return replace(base, **changes)


def _group_rules(spec: GroupSpec) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """Return for each setting of a group: its field in the entry, the given value, and the function that checks it."""
    return [
        ("start", spec.start, _start),
        ("visibility", spec.visibility, lambda given: check_visibility(parse_duration(given, "visibility"))),
        ("max_attempts", spec.max_attempts, lambda given: _between(given, _MAX_ATTEMPTS, "maxAttempts")),
        ("backoff", spec.backoff, decide_backoff),
        ("on_poison", spec.on_poison, OnPoison),
        ("tags", spec.filter, _tags),
        ("is_ordered", spec.ordered, bool),
        ("max_in_flight", spec.max_in_flight, lambda given: _between(given, _MAX_IN_FLIGHT, "maxInFlight")),
        ("rate_limit", spec.rate_limit, decide_rate),
        ("client_ttl", spec.client_ttl, _client_ttl),
        ("team", spec.team, lambda given: given),
    ]


def _between(given: int, maximum: int, field: str) -> int:
    if not 1 <= given <= maximum:
        raise InvalidValue(f"{field} must be 1 to {maximum}", field=field, limit=maximum)
    return given


def decide_backoff(spec: "BackoffSpec | list[Duration]") -> Backoff:
    if isinstance(spec, list):
        if not 1 <= len(spec) <= _MAX_BACKOFF_STEPS:
            raise InvalidValue(f"backoff must list 1 to {_MAX_BACKOFF_STEPS} durations", field="backoff")
        return Backoff(steps=tuple(parse_duration(step, f"backoff[{n}]") for n, step in enumerate(spec)))
    return Backoff(
        initial=parse_duration(spec.initial, "backoff.initial"),
        factor=spec.factor,
        max_delay=parse_duration(spec.max, "backoff.max"),
        jitter=spec.jitter,
    )


def check_visibility(visibility: timedelta) -> timedelta:
    if not _MIN_VISIBILITY <= visibility <= MAX_HOLD:
        raise InvalidValue("visibility must be 1 s to 12 h", field="visibility")
    return visibility


def _client_ttl(value: float | str) -> timedelta:
    ttl = parse_duration(value, "clientTtl")
    if ttl < timedelta(seconds=1):
        raise InvalidValue("clientTtl must be at least 1 s", field="clientTtl")
    return ttl


def _start(value: int | str) -> str:
    if value in {"earliest", "latest"}:
        return str(value)
    return format_instant(parse_instant(value, "start"))


def _fixed(field: str, given: str | UnsetType, stored: str | None) -> str:
    """Return a member that cannot be changed after creation."""
    if given is UNSET:
        if stored is None:
            raise InvalidValue(f"{field} is required", field=field)
        return stored
    if stored is not None and given != stored:
        raise FixedSetting(
            f"{field} is {stored} and cannot be changed. Delete and register the entry again.", field=field
        )
    return str(given)


def _tags(spec: FilterSpec | None) -> frozenset[str]:
    if spec is None:
        return frozenset()
    if not 1 <= len(spec.tags) <= _MAX_TAGS:
        raise InvalidValue(f"filter.tags must list 1 to {_MAX_TAGS} tags. Use null for no filter.", field="filter.tags")
    return frozenset(check_text(tag, "filter.tags") for tag in spec.tags)


def _reject_unsupported(spec: GroupSpec, mode: Mode) -> None:
    """Raise UnsupportedByMode for a setting that has no effect in the mode of the group."""
    unsupported: dict[str, object] = {}
    if mode is Mode.MESSAGE:
        unsupported["onPoison"] = spec.on_poison if spec.on_poison is OnPoison.BLOCK else UNSET
    else:
        unsupported |= {"filter": spec.filter, "ordered": spec.ordered, "maxInFlight": spec.max_in_flight}
    if mode is not Mode.BROADCAST:
        unsupported["clientTtl"] = spec.client_ttl
    for field, value in unsupported.items():
        if value is not UNSET:
            raise UnsupportedByMode(f"{field} is not supported in {mode} mode. Omit it.", field=field)
