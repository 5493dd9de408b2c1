"""Gateways that share their stores. Each is a side with its own client."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from mqgate import bootstrap
from mqgate.settings import Settings

on_rocketmq = pytest.mark.parametrize(
    "engine", [pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.redis])], indirect=True
)


class Side(NamedTuple):
    gateway: bootstrap.Gateway
    api: httpx.AsyncClient


@asynccontextmanager
async def opened(settings: Settings, directory: Path, wall_ms: Callable[[], int] | None = None) -> AsyncIterator[Side]:
    """Open a gateway with its own directory. `wall_ms` replaces the clock of the stores."""
    own = replace(settings, sqlite=replace(settings.sqlite, directory=str(directory)))
    async with bootstrap.gateway(own, wall_ms) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as api:
            yield Side(gateway, api)
