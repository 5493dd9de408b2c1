"""RocketMQ for the whole test run: one name server and three brokers, started when the first test needs them.

`rocketmq` is the stack: the broker `local` of cluster `one`, which all tests share, and the brokers `broker-a` and
`broker-b` of cluster `pair`. A test that needs those, to kill or pause one or to have two, requests `pair` and has
them alone. At other times they are paused, and the name server does not route to them: an idle broker uses a tenth of
a core.

All pytest-xdist workers share one directory, which the controller names and finally deletes. If RocketMQ cannot run,
the tests are skipped with a warning; with CI=true they fail. ROCKETMQ_STACK names the directory of a running stack with
these brokers, which is faster for repeated runs of single tests.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from mqgate.stack import BrokerSpec, Stack, StackError, StackUnavailable
from mqgate.stack.guard import guard
from mqgate.stack.lock import locked
from mqgate.stack.probe import _request

PAIR = ("broker-a", "broker-b")
# A broker without timers of its own starts in half the CPU. But when it removes a topic, it stumbles at the end.
NO_TIMERS = {"timerWheelEnable": "false"}
_LASTING = {
    # By default a broker writes the list of all topics for each new one: 6 ms with a thousand, which it soon has.
    "configManagerVersion": "v2",
    # What it does again and again for nothing.
    "timerFlushIntervalMs": "3600000",
    "timerGetMessageThreadNum": "1",
    "timerPutMessageThreadNum": "1",
    "transactionMetricFlushInterval": "1000",
}
BROKERS = (
    BrokerSpec(name="local", cluster="one", settings=_LASTING),
    *(BrokerSpec(name=name, cluster="pair", is_sync_flush=True, settings=NO_TIMERS) for name in PAIR),
)
_UPDATE_BROKER_CONFIG = 25
_UNREGISTER_BROKER = 104
_NOT_RUN = "RocketMQ cannot run here: "


class _Run(NamedTuple):
    """The state that all processes of a test run share."""

    directory: Path
    controller: int

    def bring_up(self) -> Stack:
        """Start the stack once. Other processes wait and get the same result. Raise StackError if it fails."""
        stack = Stack(self.directory / "stack")
        outcome = self.directory / "outcome"
        with locked(self.directory / "up.lock"):
            # Not a shared `up`: it would start a broker that a test has just killed.
            if not outcome.exists():
                outcome.write_text(self._attempt(stack), "utf-8")
            kind, _, reason = outcome.read_text("utf-8").partition(" ")
        if kind != "up":
            raise {"unavailable": StackUnavailable, "failed": StackError}[kind](reason)
        return stack

    def _attempt(self, stack: Stack) -> str:
        guard(stack, self.controller)
        try:
            stack.up(BROKERS)
            set_timers(stack, are_on=False)
            _rest(stack)
        except StackUnavailable as error:
            return f"unavailable {error}"
        except StackError as error:
            return f"failed {error}"
        return "up"


RUN = pytest.StashKey[_Run]()


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("cluster")
    fresh = (Path(tempfile.gettempdir()) / f"mqgate-cluster-{uuid4().hex}", os.getpid())
    config.stash[RUN] = _Run(Path(given[0]), given[1]) if given else _Run(*fresh)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the directory to a worker of xdist."""
    run = node.config.stash[RUN]
    node.workerinput["cluster"] = (str(run.directory), run.controller)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is not None and run.controller == os.getpid() and run.directory.exists():
        Stack(run.directory / "stack").down()
        shutil.rmtree(run.directory)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "rocketmq" in getattr(item, "fixturenames", ()):
            item.add_marker("rocketmq")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    reasons = [reason.partition(_NOT_RUN)[2] for reason in skipped if _NOT_RUN in reason]
    if reasons:
        text = f"{len(reasons)} TESTS NOT RUN without RocketMQ: {reasons[0]}"
        terminalreporter.write_line(text, red=True, bold=True)


@pytest.fixture(scope="session")
def rocketmq(request: pytest.FixtureRequest) -> Stack:
    """The running stack; `rocketmq.name_server` is its address."""
    if running := os.environ.get("ROCKETMQ_STACK"):
        return Stack.open(Path(running))
    try:
        return request.config.stash[RUN].bring_up()
    except StackUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{_NOT_RUN}{error}", pytrace=False)
        pytest.skip(f"{_NOT_RUN}{error}")


@pytest.fixture
def pair(rocketmq: Stack, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The same stack, with broker-a and broker-b for this test alone."""
    with locked(request.config.stash[RUN].directory / "pair.lock"):
        # A worker that died with the lock may have left one dead.
        _revive(rocketmq)
        yield rocketmq
        _revive(rocketmq)
        _rest(rocketmq)


def set_timers(stack: Stack, *, are_on: bool) -> None:
    """Whether `local` takes messages with a timer of RocketMQ's own.

    A gateway asks each broker when it was started, and one that takes them counts the 1.2 million slots of its timers
    for the answer: 100 ms of CPU, and `local` is asked by a thousand gateways.
    """
    order = b"timerWheelEnable=true" if are_on else b"timerWheelEnable=false"
    _request(_place(stack.brokers["local"]), _UPDATE_BROKER_CONFIG, {}, order)


def _revive(stack: Stack) -> None:
    for name in PAIR:
        stack.resume(name)
    for name in PAIR:
        stack.start(name)


def _rest(stack: Stack) -> None:
    """Pause the brokers of the pair and remove their routes. They register again as soon as they are resumed."""
    for name in PAIR:
        stack.pause(name)
        who = {"clusterName": "pair", "brokerName": name, "brokerAddr": stack.brokers[name], "brokerId": "0"}
        _request(_place(stack.name_server), _UNREGISTER_BROKER, who)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)
