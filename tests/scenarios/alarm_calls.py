"""Alarms as the scenarios use them: the background services are off, and each step is called by name."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
from message_calls import put

from mqgate.bootstrap import Gateway
from mqgate.settings import AlarmsSettings, Settings
from webhook_receiver import WebhookReceiver

SECRET = "correct horse battery"


def by_hand(settings: Settings) -> Settings:
    """Return settings of a gateway that evaluates only when a test calls it."""
    return replace(settings, alarms=AlarmsSettings(enabled=False))


async def step(gateway: Gateway) -> None:
    """Do what the background services do once per interval: extend the lease, and evaluate if it is held."""
    await gateway.alarms.lease.run_once()
    await gateway.alarms.evaluator.run_once()


async def watch_backlog(api: httpx.AsyncClient, threshold: float, hold: str = "1m") -> None:
    await put(api, "alarms/rules/backlog_count", threshold=threshold, **{"for": hold})


async def add_channel(api: httpx.AsyncClient, receiver: WebhookReceiver, name: str = "ops") -> None:
    await put(api, f"alarms/channels/{name}", kind="webhook", url=receiver.url, secret=SECRET)


async def items(api: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    answer = await api.get(f"/v1/alarms{path}", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


MINUTE = timedelta(minutes=1)
