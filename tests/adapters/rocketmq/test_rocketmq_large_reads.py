"""Reads of more messages than a broker returns at once."""

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
    """Fill a queue with messages of 100 bytes that contain their offsets."""
    await log.create("large", 1)
    drafts = [Draft(uuid4().hex, f"{number:0100}".encode(), slot=0) for number in range(_MESSAGES)]
    stored = await log.append("large", drafts)
    assert {outcome.queue for outcome in stored} == {"local:0"}
    return "local:0"


@pytest.mark.parametrize(("offset", "max_count"), [(0, _MESSAGES), (0, 33), (5, 500), (900, 5_000), (0, 5_000)])
async def test_a_large_read_returns_all_messages_in_order(
    log: RocketMQMessageLog, queue: str, offset: int, max_count: int
) -> None:
    """Concurrent pulls must not change the order."""
    found = await log.read("large", queue, offset, max_count, _EVERYTHING)

    assert [message.offset for message in found] == list(range(offset, min(offset + max_count, _MESSAGES)))
    assert [int(message.body) for message in found] == [message.offset for message in found]


@pytest.mark.parametrize("max_bytes", [1, 100, 3_250, 50_000])
async def test_a_large_read_stops_at_the_byte_limit(log: RocketMQMessageLog, queue: str, max_bytes: int) -> None:
    """The limit bounds memory. The first message is always returned."""
    found = await log.read("large", queue, 0, _MESSAGES, max_bytes)

    assert [message.offset for message in found] == list(range(max(max_bytes // 100, 1)))


async def test_a_read_beyond_the_end_returns_nothing(log: RocketMQMessageLog, queue: str) -> None:
    """A consumer at the end of a queue reads again and again."""
    assert list(await log.read("large", queue, _MESSAGES, 100, _EVERYTHING)) == []
    assert list(await log.read("large", queue, _MESSAGES + 50, 100, _EVERYTHING)) == []
