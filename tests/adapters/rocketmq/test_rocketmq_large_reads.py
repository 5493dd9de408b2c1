"""Reads of more than a broker answers at once."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.core.message import Draft
from mqgate.rocketmq import RocketMQClient
from mqgate.stack.stack import Stack

_MESSAGES = 1_000
_EVERYTHING = 1 << 30


@pytest.fixture
async def log(rocketmq: Stack) -> AsyncIterator[RocketMQMessageLog]:
    space = uuid4().hex[:8]
    log = RocketMQMessageLog(RocketMQClient([rocketmq.name_server]), wire=lambda name: f"{space}%{name}", cluster="one")
    yield log
    await log.close()


@pytest.fixture
async def queue(log: RocketMQMessageLog) -> str:
    """A full queue; a hundred bytes each, and every message says where it lies."""
    await log.create("large", 1)
    drafts = [Draft(uuid4().hex, f"{number:0100}".encode(), slot=0) for number in range(_MESSAGES)]
    stored = await log.append("large", drafts)
    assert {each.queue for each in stored} == {"local:0"}
    return "local:0"


@pytest.mark.parametrize(("offset", "most"), [(0, _MESSAGES), (0, 33), (5, 500), (900, 5_000), (0, 5_000)])
async def test_a_large_read_gives_all_in_order(log: RocketMQMessageLog, queue: str, offset: int, most: int) -> None:
    """Several pulls are under way at once, and nobody may notice."""
    found = await log.read("large", queue, offset, most, _EVERYTHING)

    assert [message.offset for message in found] == list(range(offset, min(offset + most, _MESSAGES)))
    assert [int(message.body) for message in found] == [message.offset for message in found]


@pytest.mark.parametrize("room", [1, 100, 3_250, 50_000])
async def test_a_large_read_stops_where_the_bytes_do(log: RocketMQMessageLog, queue: str, room: int) -> None:
    """Memory is bounded by it; the first message is given in any case."""
    found = await log.read("large", queue, 0, _MESSAGES, room)

    assert [message.offset for message in found] == list(range(max(room // 100, 1)))


async def test_a_read_beyond_the_end_gives_nothing(log: RocketMQMessageLog, queue: str) -> None:
    """Whoever is at the end asks again and again."""
    assert list(await log.read("large", queue, _MESSAGES, 100, _EVERYTHING)) == []
    assert list(await log.read("large", queue, _MESSAGES + 50, 100, _EVERYTHING)) == []
