"""The log on a real RocketMQ, on the cluster whose one broker is called `local`."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from uuid import uuid4

import pytest

from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.core.errors import TopicNotFound
from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.errors import Refused
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.stack.stack import Stack
from mqgate.testing.message_log_contract import MessageLogContract
from mqgate.testing.samples import a_draft, queues

OpenLog = Callable[[], RocketMQMessageLog]


@pytest.fixture
async def open_log(rocketmq: Stack) -> AsyncIterator[OpenLog]:
    """Opens the log anew, in a name space of this test's own."""
    space = uuid4().hex[:8]
    opened: list[RocketMQMessageLog] = []

    def open_log() -> RocketMQMessageLog:
        client = RocketMQClient([rocketmq.name_server])
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
            raise Refused(ResponseCode.SYSTEM_ERROR, "java.util.NoSuchElementException", broker)
        return await runtime(broker)

    async def told() -> tuple[bool, list[str]]:
        await log._topics.look_again(await log._topics.get("orders"), None)
        bounds = await log.bounds("orders")
        return bool(bounds.closed), list(bounds.boots)

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


@pytest.mark.rocketmq
async def test_ends_as_they_are_now_include_what_others_stored(open_log: OpenLog) -> None:
    """The broker tells of it a moment after it has confirmed it to another, and what we know may be older still."""
    here, there = open_log(), open_log()
    await here.create("orders", 1)

    for number in range(1, 11):
        await there.bounds("orders")
        await here.append("orders", [a_draft()])

        assert (await there.current_bounds("orders")).queues == queues(number)


@pytest.mark.rocketmq
async def test_a_broker_that_is_behind_is_waited_for(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load it is always a little behind: what it had stored when it was first asked is enough."""
    here, there = open_log(), open_log()
    await here.create("orders", 1)
    await here.append("orders", [a_draft()])
    await there.current_bounds("orders")
    ends = there._client.offsets.ends
    looks = iter([(1_000, 100), (1_050, 100), (1_200, 150)])
    is_behind = True

    async def busy(broker: str) -> Mapping[str, str]:
        nonlocal is_behind
        stored, behind = next(looks)
        is_behind = stored - behind < 1_000
        return {"commitLogMaxOffset": str(stored), "dispatchBehindBytes": str(behind)}

    async def shown(broker: str, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, 1)} if is_behind else await ends(broker, topic)

    monkeypatch.setattr(there._client.admin, "runtime", busy)
    monkeypatch.setattr(there._client.offsets, "ends", shown)
    await here.append("orders", [a_draft()])
    await here.current_bounds("orders")
    now = await there.current_bounds("orders")

    assert now.queues == queues(2)
    assert list(looks) == []


@pytest.mark.rocketmq
async def test_ends_are_told_though_a_broker_does_not_say_whether_it_has_caught_up(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes a right which not every user has: a seek works without, and misses a moment at worst."""
    log = open_log()
    await log.create("orders", 1)
    await log.append("orders", [a_draft()])
    before = await log.bounds("orders")

    async def refused(broker: str) -> Mapping[str, str]:
        raise Refused(ResponseCode.NO_PERMISSION, "no", broker)

    monkeypatch.setattr(log._client.admin, "runtime", refused)
    now = await log.current_bounds("orders")

    assert (now.queues, now.closed) == (before.queues, frozenset())


@pytest.mark.rocketmq
async def test_a_topic_that_others_made_is_read_and_dropped_whatever_was_believed(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names its queue knows better than who found no topic a moment ago; and what is to go must not stay."""
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._UNKNOWN_FOR", 60.0)
    here, reader, dropper = open_log(), open_log(), open_log()
    for log in (reader, dropper):
        with pytest.raises(TopicNotFound):
            await log.bounds("orders")
    await here.create("orders", 1)
    await here.append("orders", [a_draft()])

    believed = reader.is_known_missing("orders"), dropper.is_known_missing("orders")
    found = await reader.read("orders", "local:0", 0, 1, 1)
    await dropper.drop("orders")

    assert believed == (True, True)
    assert len(found) == 1
    with pytest.raises(TopicNotFound):
        await open_log().bounds("orders")
