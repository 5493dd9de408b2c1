"""What the components of a gateway are built on: the open stores, and the control data that this gateway caches."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from mqgate.adapters.sqlite.engine import Engine
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.registry.follower import RegistryFollower
from mqgate.core.receipt import KeyRotationPolicy, ReceiptKeys
from mqgate.engines import Control, Leases, Log
from mqgate.events.recorder import EventRecorder
from mqgate.ports.registry_store import RegistryStore
from mqgate.settings import Settings
from mqgate.telemetry.metrics import Metrics

__all__ = ["ControlData", "Opened", "load_control_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Settings, open stores, metrics and the event recorder. `engine` is None if no store is embedded."""

    settings: Settings
    engine: Engine | None
    log: Log
    control: Control
    leases: Leases
    metrics: Metrics
    recorder: EventRecorder


class ControlData(NamedTuple):
    """The cached registry and the receipt keys. `catch_up` waits until changes of other gateways are loaded."""

    directory: CachedDirectory
    keys: ReceiptKeys
    follower: RegistryFollower
    reload_keys: Callable[[], Awaitable[None]]
    catch_up: Callable[[], Awaitable[None]]


async def load_control_data(control: Control) -> ControlData:
    """Load the registry and the receipt keys."""
    directory = CachedDirectory(control.registry)
    await directory.refresh()
    keys = ReceiptKeys(await control.registry.receipt_keys(KeyRotationPolicy()))
    reload_keys = partial(_reload_keys, keys, control.registry)
    follower = RegistryFollower(directory.refresh, reload_keys)
    return ControlData(directory, keys, follower, reload_keys, follower.catch_up if control.is_shared else _no_catch_up)


async def _reload_keys(keys: ReceiptKeys, store: RegistryStore) -> None:
    keys.update_keys(await store.receipt_keys(KeyRotationPolicy()))


async def _no_catch_up() -> None:
    """Do nothing: no other gateway changes the registry."""
