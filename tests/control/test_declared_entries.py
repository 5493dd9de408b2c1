"""Entries of the configuration file are applied at the start, and differences are logged."""

from dataclasses import replace
from typing import Any

import pytest
import structlog

from mqgate import bootstrap
from mqgate.settings import Settings, SettingsInvalid

TOPIC = {"name": "orders", "queues": 2}


async def started(settings: Settings, **entries: Any) -> tuple[dict[str, Any], list[str]]:
    """Start with entries. Return what is registered, and the log events about entries."""
    with structlog.testing.capture_logs() as logs:
        async with bootstrap.gateway(replace(settings, **entries)) as gateway:
            found = gateway.registry.snapshot
    events = [log["event"] for log in logs if log.get("kind")]
    return {"queues": found.topics["orders"].queues, "groups": set(found.groups)}, events


async def test_a_change_in_the_file_is_applied_and_logged(settings: Settings) -> None:
    """An entry that differs from the file is changed, and the log shows it."""
    first = await started(settings, topic=(TOPIC,))
    same = await started(settings, topic=(TOPIC,))
    more = await started(settings, topic=({**TOPIC, "queues": 3},))

    assert first == ({"queues": 2, "groups": set()}, ["entry registered"])
    assert same == ({"queues": 2, "groups": set()}, [])
    assert more == ({"queues": 3, "groups": set()}, ["entry changed to match the file"])


async def test_a_topic_that_has_grown_does_not_prevent_the_start(settings: Settings) -> None:
    """Queues cannot be removed, and an old file must not keep a gateway down."""
    await started(settings, topic=({**TOPIC, "queues": 5},))

    found = await started(settings, topic=(TOPIC,), group=({"name": "workers", "topic": "orders"},))

    events = ["entry differs from the file, kept", "entry registered"]
    assert found == ({"queues": 5, "groups": {"workers"}}, events)


async def test_a_conflicting_entry_prevents_the_start(settings: Settings) -> None:
    """The mode of a group is fixed. Changing it requires a deletion."""
    group = {"name": "workers", "topic": "orders"}
    await started(settings, topic=(TOPIC,), group=(group,))

    with pytest.raises(SettingsInvalid, match="workers"):
        await started(settings, topic=(TOPIC,), group=({**group, "mode": "queue"},))
