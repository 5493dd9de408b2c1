"""Lease stores on a real server, each under a prefix of its own."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from mqgate.adapters.redis.server import Server
from mqgate.stack import Stack


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture
async def server(redis: Stack) -> AsyncIterator[Server]:
    server = Server(redis.redis_url, timeout=10.0)
    yield server
    await server.close()
