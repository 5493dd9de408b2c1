"""The log on a real RocketMQ, on the cluster whose one broker is called `local`."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from uuid import uuid4

import pytest

from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.rocketmq import Client
from mqgate.rocketmq.errors import Refused
from mqgate.rocketmq.remoting.codes import Response
from mqgate.stack.stack import Stack
from mqgate.testing.message_log_contract import MessageLogContract

OpenLog = Callable[[], RocketMQMessageLog]


@pytest.fixture
async def open_log(rocketmq: Stack) -> AsyncIterator[OpenLog]:
    """Opens the log anew, in a name space of this test's own."""
    space = uuid4().hex[:8]
    opened: list[RocketMQMessageLog] = []

    def open_log() -> RocketMQMessageLog:
        client = Client([rocketmq.name_server])
        opened.append(RocketMQMessageLog(client, wire=lambda name: f"{space}%{name}", cluster="one"))
        return opened[-1]

    yield open_log
    for log in opened:
        await log.close()


@pytest.mark.rocketmq
class TestRocketMQMessageLog(MessageLogContract):
    clock_difference = timedelta(seconds=2)

    @pytest.fixture
    def log(self, open_log: OpenLog) -> RocketMQMessageLog:
        return open_log()

    @pytest.fixture
    def reopen(self, log: RocketMQMessageLog, open_log: OpenLog) -> Callable[[], Awaitable[RocketMQMessageLog]]:
        async def reopen() -> RocketMQMessageLog:
            await log.close()
            return open_log()

        return reopen

    @pytest.fixture
    def tick(self) -> Callable[[], None]:
        """The broker's clock is the machine's: it cannot be moved, only waited for."""
        return lambda: time.sleep(0.002)


@pytest.mark.rocketmq
async def test_a_broker_that_cannot_say_yet_when_it_was_started_is_asked_again(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cannot for a moment after their start: until then nothing is granted, and nothing told of the run before."""
    log = open_log()
    await log.create("orders", 1)
    admin, refusals = log._client.admin, [True]
    runtime = admin.runtime

    async def hesitant(broker: str) -> Mapping[str, str]:
        if refusals:
            raise Refused(Response.SYSTEM_ERROR, "java.util.NoSuchElementException", broker)
        return await runtime(broker)

    async def told() -> tuple[bool, list[str]]:
        await log._topics.look_again(await log._topics.get("orders"), None)
        heads = await log.heads("orders")
        return bool(heads.closed), list(heads.boots)

    monkeypatch.setattr(admin, "runtime", hesitant)
    at_first = await told()
    refusals.clear()
    later = await told()
    # As if on another connection, to a broker that was started again and never says so.
    log._topics._boots.clear()
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._HESITATION", 0.0)
    refusals.append(True)
    at_last = await told()

    assert (at_first, later, at_last) == ((True, []), (False, ["local:0"]), (False, []))
