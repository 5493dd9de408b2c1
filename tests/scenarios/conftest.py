"""A gateway that goes by the real clock, for scenarios that wait."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from mqgate import bootstrap
from mqgate.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without an fsync for every answer: what survives a power cut is tested where it is promised."""
    return replace(settings, sqlite=replace(settings.sqlite, synchronous="normal"))


@pytest.fixture
async def live(settings: Settings) -> AsyncIterator[bootstrap.Gateway]:
    async with bootstrap.gateway(settings) as built:
        yield built


@pytest.fixture
async def live_api(live: bootstrap.Gateway) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=live.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://mqgate") as client:
        yield client
