"""What can be applied for: the check of an application, and its execution.

Every execution can be repeated. `PUT` merges the same settings again; a seek goes to offsets that were fixed before.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from mqgate.control.registry.model import GroupSpec, Instant, ProducerSpec, RateSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.application import Application, ApplicationKind
from mqgate.core.entries import Snapshot
from mqgate.core.errors import AlreadyExists, InvalidValue, NotFound
from mqgate.core.times import parse_instant

__all__ = ["CREATING", "Requests", "SeekOperation", "check", "entry_of"]

_K = ApplicationKind
_Execution = Callable[[Application, str], Awaitable[object]]


class RateIn(Struct, rename="camel", forbid_unknown_fields=True):
    rate_limit: float | RateSpec | None


class SeekIn(Struct, rename="camel", forbid_unknown_fields=True):
    to: Instant | dict[str, int]


class NothingIn(Struct, forbid_unknown_fields=True):
    pass


# The sorts of entries that each kind concerns, and the structure of its settings.
_RULES: dict[ApplicationKind, tuple[frozenset[str], Any]] = {
    _K.TOPIC: (frozenset({"topic"}), TopicSpec),
    _K.PRODUCER: (frozenset({"producer"}), ProducerSpec),
    _K.GROUP: (frozenset({"group"}), GroupSpec),
    _K.KEY: (frozenset({"producer", "group"}), NothingIn),
    _K.RATE: (frozenset({"producer", "group"}), RateIn),
    _K.SEEK: (frozenset({"group"}), SeekIn),
    _K.SKIP: (frozenset({"group"}), NothingIn),
    _K.PAUSE: (frozenset({"group"}), NothingIn),
    _K.RESUME: (frozenset({"group"}), NothingIn),
    _K.DELETION: (frozenset({"topic", "producer", "group"}), NothingIn),
}
CREATING = frozenset({_K.TOPIC, _K.PRODUCER, _K.GROUP})


class SeekOperation(Protocol):
    """A seek of a group that is not a broadcast group. It returns the offset of each queue afterwards."""

    async def __call__(self, name: str, to: Any, *, is_dry_run: bool, actor: str) -> dict[str, int]: ...


def check(kind: ApplicationKind, entry: str, settings: bytes) -> None:
    """Raise InvalidValue if an application of this kind cannot concern this entry or have these settings."""
    entries, structure = _RULES[kind]
    if entry not in entries:
        raise InvalidValue(f"An application of kind {kind} names a {' or '.join(sorted(entries))}.", field="kind")
    try:
        msgspec.json.decode(settings, type=structure)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"settings: {str(error)[:200]}", field="settings") from None


class Requests:
    """The executions by kind."""

    def __init__(self, registry: Registry, seek: SeekOperation) -> None:
        self._registry = registry
        self._seek = seek
        self._by_kind: dict[ApplicationKind, _Execution] = {
            _K.TOPIC: self._put,
            _K.PRODUCER: self._put,
            _K.GROUP: self._put,
            _K.KEY: self._find,
            _K.RATE: self._put_rate,
            _K.SEEK: self._move,
            _K.SKIP: self._move,
            _K.PAUSE: self._pause,
            _K.RESUME: self._pause,
            _K.DELETION: self._delete,
        }

    async def plan(self, application: Application) -> str | None:
        """Return what must be fixed before the execution, as JSON: the target offsets of a seek."""
        if application.kind not in {_K.SEEK, _K.SKIP}:
            return None
        to: Any = "latest"
        if application.kind is _K.SEEK:
            to = msgspec.json.decode(application.settings, type=SeekIn).to
            if not isinstance(to, dict) and to not in {"earliest", "latest"}:
                to = parse_instant(to, "to")
        target = await self._seek(application.name, to, is_dry_run=True, actor="")
        return msgspec.json.encode(target).decode()

    async def execute(self, application: Application) -> None:
        """Apply an approved application. It may have been applied before."""
        await self._by_kind[application.kind](application, f"application {application.id}")

    async def _put(self, application: Application, actor: str) -> None:
        _, structure = _RULES[application.kind]
        spec = msgspec.json.decode(application.settings, type=structure)
        found = entry_of(self._registry.snapshot, application.entry, application.name)
        if found is not None and found.team != application.team:
            raise AlreadyExists(f"Another team owns {application.entry} {application.name}. Choose another name.")
        if application.team is not None:
            spec.team = application.team
        put: Callable[..., Awaitable[object]] = getattr(self._registry, f"put_{application.entry}")
        await put(application.name, spec, actor)

    async def _find(self, application: Application, _: str) -> None:
        await getattr(self._registry, application.entry)(application.name)

    async def _put_rate(self, application: Application, actor: str) -> None:
        await self._find(application, actor)
        limit = msgspec.json.decode(application.settings, type=RateIn).rate_limit
        if application.entry == "producer":
            await self._registry.put_producer(application.name, ProducerSpec(rate_limit=limit), actor)
        else:
            await self._registry.patch_group(application.name, GroupSpec(rate_limit=limit), actor)

    async def _move(self, application: Application, actor: str) -> None:
        target = msgspec.json.decode(application.plan or "{}", type=dict[str, int])
        if target:
            await self._seek(application.name, target, is_dry_run=False, actor=actor)

    async def _pause(self, application: Application, actor: str) -> None:
        is_paused = application.kind is _K.PAUSE
        await self._registry.pause(application.name, is_paused=is_paused, reason=application.reason, actor=actor)

    async def _delete(self, application: Application, actor: str) -> None:
        delete: Callable[..., Awaitable[object]] = getattr(self._registry, f"delete_{application.entry}")
        try:
            await delete(application.name, actor)
        except NotFound:
            # An earlier attempt deleted it.
            return


def entry_of(snapshot: Snapshot, entry: str, name: str) -> Any:
    """Return a topic, producer or group, or None."""
    return getattr(snapshot, f"{entry}s").get(name)
