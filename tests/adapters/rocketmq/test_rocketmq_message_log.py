"""The message log on a real RocketMQ, on a cluster with the single broker `local`."""

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
    """Return a function that opens the log, in a namespace of this test."""
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
        """Wait for the clock of the broker, which cannot be moved."""
        return lambda: time.sleep(0.002)


@pytest.mark.rocketmq
async def test_queues_stay_closed_until_a_starting_broker_reports_its_boot_time(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may refuse shortly after its start. The boot time of an earlier run must not be reported."""
    log = open_log()
    await log.create("orders", 1)
    admin, refusals = log._client.admin, [True]
    runtime = admin.runtime

    async def starting_runtime(broker: str) -> Mapping[str, str]:
        if refusals:
            raise Refused(ResponseCode.SYSTEM_ERROR, "java.util.NoSuchElementException", broker)
        return await runtime(broker)

    async def read_state() -> tuple[bool, list[str]]:
        await log._topics.refresh_now(await log._topics.get("orders"), None)
        bounds = await log.bounds("orders")
        return bool(bounds.closed), list(bounds.boots)

    monkeypatch.setattr(admin, "runtime", starting_runtime)
    at_first = await read_state()
    refusals.clear()
    later = await read_state()
    # This simulates a new connection to a restarted broker that never reports its boot time.
    log._topics._boots.clear()
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._STARTING_FOR", 0.0)
    refusals.append(True)
    at_last = await read_state()

    assert (at_first, later, at_last) == ((True, []), (False, ["local:0"]), (False, []))


@pytest.mark.rocketmq
async def test_current_bounds_include_messages_that_other_gateways_stored(open_log: OpenLog) -> None:
    """A broker reports a message shortly after the confirmation, and the cached bounds may be older still."""
    here, there = open_log(), open_log()
    await here.create("orders", 1)

    for number in range(1, 11):
        await there.bounds("orders")
        await here.append("orders", [a_draft()])

        assert (await there.current_bounds("orders")).queues == queues(number)


@pytest.mark.rocketmq
async def test_current_bounds_wait_until_the_broker_has_indexed_its_messages(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load a broker is always a little behind, so only the messages stored at the first check are awaited."""
    here, there = open_log(), open_log()
    await here.create("orders", 1)
    await here.append("orders", [a_draft()])
    await there.current_bounds("orders")
    bounds = there._client.offsets.bounds
    checks = iter([(1_000, 100), (1_050, 100), (1_200, 150)])
    is_behind = True

    async def busy(broker: str) -> Mapping[str, str]:
        nonlocal is_behind
        stored, behind = next(checks)
        is_behind = stored - behind < 1_000
        return {"commitLogMaxOffset": str(stored), "dispatchBehindBytes": str(behind)}

    async def reported(broker: str, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, 1)} if is_behind else await bounds(broker, topic)

    monkeypatch.setattr(there._client.admin, "runtime", busy)
    monkeypatch.setattr(there._client.offsets, "bounds", reported)
    await here.append("orders", [a_draft()])
    await here.current_bounds("orders")
    now = await there.current_bounds("orders")

    assert now.queues == queues(2)
    assert list(checks) == []


@pytest.mark.rocketmq
async def test_current_bounds_work_without_permission_to_read_the_broker_status(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every user has that permission. A seek works without it and may miss the last moment."""
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
async def test_a_topic_of_another_gateway_is_read_and_dropped_although_it_was_missing(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cached absence of a topic must not hide a topic that was created since."""
    monkeypatch.setattr("mqgate.adapters.rocketmq.topics._MISSING_FOR", 60.0)
    here, reader, dropper = open_log(), open_log(), open_log()
    for log in (reader, dropper):
        with pytest.raises(TopicNotFound):
            await log.bounds("orders")
    await here.create("orders", 1)
    await here.append("orders", [a_draft()])

    were_missing = reader.is_known_missing("orders"), dropper.is_known_missing("orders")
    found = await reader.read("orders", "local:0", 0, 1, 1)
    await dropper.drop("orders")

    assert were_missing == (True, True)
    assert len(found) == 1
    with pytest.raises(TopicNotFound):
        await open_log().bounds("orders")
