"""The gateway runs on uvloop, the library must on both: every test with a socket runs on each of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from hypothesis import settings
from scripted_server import HandClock, ScriptedServer, nothing_is_left

from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.transport import KeepAlive

# A busy machine is no failed test.
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
    """A second one."""
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def hand_clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def peers(hand_clock: HandClock) -> AsyncIterator[Peers]:
    peers = Peers(None, None, 5.0, keep_alive=KeepAlive(after=60.0), clock=hand_clock)
    yield peers
    await peers.close()
    await nothing_is_left()
