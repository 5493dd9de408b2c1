"""Registration of the entries that mqgate.toml declares."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from mqgate.control.registry.model import GroupSpec, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.errors import Busy, MqgateError, NotFound, QueuesOnlyGrow, RegistryChanged
from mqgate.http.json_input import explain
from mqgate.settings import Settings, SettingsInvalid

__all__ = ["declare", "declare_later"]

_RETRY_INTERVAL = 1.0
_log = structlog.get_logger()


async def declare(registry: Registry, settings: Settings) -> bool:
    """Register the entries of mqgate.toml. Entries that differ from the registry are changed and logged.

    Return False if brokers were unavailable, so that entries are still to be registered.
    """
    faults: list[str] = []
    is_done = True
    for kind, entries, spec_type, put in (
        ("topic", settings.topic, TopicSpec, registry.put_topic),
        ("producer", settings.producer, ProducerSpec, registry.put_producer),
        ("group", settings.group, GroupSpec, registry.put_group),
    ):
        for entry in entries:
            name = entry.get("name")
            if not isinstance(name, str):
                faults.append(f"[[{kind}]] needs a name")
                continue
            try:
                await _declare(registry, kind, name, entry, spec_type, put)
            except Busy as error:
                _log.warning("entry registration postponed", kind=kind, name=name, error=error.detail)
                is_done = False
            except NotFound as error:
                # The topic itself may be postponed.
                faults += [f"[[{kind}]] {name}: {error.detail}"] if is_done else []
            except QueuesOnlyGrow as error:
                # The topic was given more queues after the file was written. Neither is an error.
                _log.warning("entry differs from the file, kept", kind=kind, name=name, why=error.detail)
            except MqgateError as error:
                faults.append(f"[[{kind}]] {name}: {error.detail}")
    if faults:
        raise SettingsInvalid(faults)
    return is_done


async def declare_later(registry: Registry, settings: Settings) -> None:
    """Retry until all entries are registered. A gateway serves while its brokers are unavailable."""
    is_done = False
    while not is_done:
        await asyncio.sleep(_RETRY_INTERVAL)
        try:
            is_done = await declare(registry, settings)
        except SettingsInvalid as error:
            _log.error("entries of the file rejected", error=str(error))
            return


async def _declare(
    registry: Registry, kind: str, name: str, entry: Mapping[str, Any], spec_type: Any, put: Any
) -> None:
    try:
        given = {key: value for key, value in entry.items() if key != "name"}
        # TOML has a type for instants; the registry expects text.
        spec = msgspec.convert(msgspec.to_builtins(given), spec_type)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    while True:
        before = getattr(registry.snapshot, f"{kind}s").get(name)
        try:
            after, is_new = await put(name, spec, "mqgate.toml")
            break
        except RegistryChanged:
            # Gateways that start at the same time declare the same entries.
            continue
    if is_new:
        _log.info("entry registered", kind=kind, name=name)
    elif before is not None and after != before:
        old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
        changed = {member: [old[member], new[member]] for member in new if old[member] != new[member]}
        _log.warning("entry changed to match the file", kind=kind, name=name, changed=changed)
