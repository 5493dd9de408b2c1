"""Entries that the configuration declares: applied at the start, and what differs is told."""

from dataclasses import replace
from typing import Any

import pytest
import structlog

from mqgate import bootstrap
from mqgate.settings import Settings, SettingsInvalid

TOPIC = {"name": "orders", "queues": 2}


async def started(settings: Settings, **entries: Any) -> tuple[dict[str, Any], list[str]]:
    """What is registered after a start with these entries, and what was said of them."""
    with structlog.testing.capture_logs() as logs:
        async with bootstrap.gateway(replace(settings, **entries)) as gateway:
            found = gateway.registry.snapshot
    said = [log["event"] for log in logs if log.get("kind")]
    return {"queues": found.topics["orders"].queues, "groups": set(found.groups)}, said


async def test_a_change_in_the_file_is_applied_and_told(settings: Settings) -> None:
    """What was registered otherwise is changed, and the log says so."""
    first = await started(settings, topic=(TOPIC,))
    same = await started(settings, topic=(TOPIC,))
    more = await started(settings, topic=({**TOPIC, "queues": 3},))

    assert first == ({"queues": 2, "groups": set()}, ["entry registered"])
    assert same == ({"queues": 2, "groups": set()}, [])
    assert more == ({"queues": 3, "groups": set()}, ["entry changed to match the file"])


async def test_a_topic_that_has_grown_since_starts_all_the_same(settings: Settings) -> None:
    """Queues only become more: at three in the morning an old file must not keep a gateway down."""
    await started(settings, topic=({**TOPIC, "queues": 5},))

    found = await started(settings, topic=(TOPIC,), group=({"name": "workers", "topic": "orders"},))

    told = ["entry differs from the file, kept", "entry registered"]
    assert found == ({"queues": 5, "groups": {"workers"}}, told)


async def test_an_entry_that_contradicts_what_is_stored_refuses_to_start(settings: Settings) -> None:
    """A group's mode is decided once: whoever wants another one has to say so by deleting it."""
    group = {"name": "workers", "topic": "orders"}
    await started(settings, topic=(TOPIC,), group=(group,))

    with pytest.raises(SettingsInvalid, match="workers"):
        await started(settings, topic=(TOPIC,), group=({**group, "mode": "queue"},))
