"""Registers the entries that mqgate.toml declares."""

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

_DECLARED_AGAIN = 1.0
_log = structlog.get_logger()


async def declare(registry: Registry, settings: Settings) -> bool:
    """Apply the entries of mqgate.toml; what differs from what is stored is changed and told.

    False if the brokers were away: then the rest is to be applied later.
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
                _log.warning("entry is registered later", kind=kind, name=name, error=error.detail)
                is_done = False
            except NotFound as error:
                # Of a topic that waits itself.
                faults += [f"[[{kind}]] {name}: {error.detail}"] if is_done else []
            except QueuesOnlyGrow as error:
                # Somebody gave it more since the file was written: nothing is wrong with either.
                _log.warning("entry differs from the file and stays", kind=kind, name=name, why=error.detail)
            except MqgateError as error:
                faults.append(f"[[{kind}]] {name}: {error.detail}")
    if faults:
        raise SettingsInvalid(faults)
    return is_done


async def declare_later(registry: Registry, settings: Settings) -> None:
    """A gateway serves while its brokers are away; what it could not register follows when they are back."""
    is_done = False
    while not is_done:
        await asyncio.sleep(_DECLARED_AGAIN)
        try:
            is_done = await declare(registry, settings)
        except SettingsInvalid as error:
            _log.error("entries of the file are no good", error=str(error))
            return


async def _declare(
    registry: Registry, kind: str, name: str, entry: Mapping[str, Any], spec_type: Any, put: Any
) -> None:
    try:
        given = {key: value for key, value in entry.items() if key != "name"}
        # TOML has instants of its own; ours are text.
        spec = msgspec.convert(msgspec.to_builtins(given), spec_type)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    while True:
        before = getattr(registry.snapshot, f"{kind}s").get(name)
        try:
            after, is_new = await put(name, spec, "mqgate.toml")
            break
        except RegistryChanged:
            # Gateways that start together declare the same.
            continue
    if is_new:
        _log.info("entry registered", kind=kind, name=name)
    elif before is not None and after != before:
        old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
        changed = {member: [old[member], new[member]] for member in new if old[member] != new[member]}
        _log.warning("entry differed from the file and was changed", kind=kind, name=name, changed=changed)
