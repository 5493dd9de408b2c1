"""Every test with a socket runs on asyncio and on uvloop: the gateway uses uvloop, other users may not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from hypothesis import settings
from scripted_server import ManualClock, ScriptedServer, assert_no_task_left

from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.transport import KeepAlive

# Tests must not fail on a slow machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def other() -> AsyncIterator[ScriptedServer]:
    """A second server."""
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def peers(manual_clock: ManualClock) -> AsyncIterator[Peers]:
    peers = Peers(None, None, 5.0, keep_alive=KeepAlive(after=60.0), clock=manual_clock)
    yield peers
    await peers.close()
    await assert_no_task_left()
