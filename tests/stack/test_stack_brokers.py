"""The shared brokers of the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from listening_sockets import listening_addresses

from mqgate.stack import Stack, find_java, jars
from mqgate.stack.probe import is_listed

THIS_TEST = f"{__file__}::test_three_brokers_are_ready"


def _has(stack: Stack, topic: str, broker: str) -> bool:
    return is_listed(("127.0.0.1", stack.part("namesrv").port), topic, stack.address(broker))


@pytest.mark.slow
def test_three_brokers_are_ready(pair: Stack) -> None:
    """Every test with RocketMQ depends on it."""
    assert [name for name in pair.brokers if pair.is_ready(name)] == ["local", "broker-a", "broker-b"]


@pytest.mark.slow
def test_name_server_and_brokers_listen_on_loopback_only(pair: Stack) -> None:
    """A stack has no passwords, so no port may be reachable from the network."""
    pids = {name: part.pid for name, part in pair.parts().items()}

    addresses = {name: listening_addresses(pid) for name, pid in pids.items() if pid is not None}

    assert addresses.keys() >= {"namesrv", "local", "broker-a", "broker-b"}
    assert all(found and all(address.is_loopback for address in found) for found in addresses.values()), addresses


@pytest.mark.slow
def test_a_killed_broker_restarts_with_its_port_and_its_store(pair: Stack) -> None:
    """Tests kill brokers under load and count the stored messages afterwards."""
    before = pair.part("broker-a")
    admin = [str(find_java()), "-cp", f"{jars()}/*", "org.apache.rocketmq.tools.command.MQAdminStartup"]
    topic = ["updateTopic", "-n", pair.name_server, "-b", before.address, "-t", "kept", "-r", "1", "-w", "1"]
    subprocess.run([*admin, *topic], capture_output=True, check=True)  # noqa: S603 - our own words
    assert _has(pair, "kept", "broker-a")

    pair.kill("broker-a")
    assert not pair.is_alive("broker-a")
    assert not pair.is_ready("broker-a")
    pair.start("broker-a")

    assert pair.part("broker-a").pid != before.pid
    assert pair.address("broker-a") == before.address
    assert _has(pair, "kept", "broker-a")


@pytest.mark.slow
def test_the_pair_fixture_restarts_stopped_brokers(pair: Stack) -> None:
    """A previous test may have left a broker stopped, as this one does."""
    assert pair.is_ready("broker-a")
    assert pair.is_ready("broker-b")

    pair.kill("broker-b")


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_without_java_tests_are_skipped_loudly_and_fail_in_ci(ci: str, outcome: str, tmp_path: Path) -> None:
    """A successful run without the RocketMQ tests would be misleading."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH", "JAVA_HOME"))
    }

    result = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "pytest", THIS_TEST, "--basetemp", str(tmp_path / "inner")],
        env={**environment, "PATH": "", "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome in result.stdout
    assert ("1 TESTS NOT RUN without RocketMQ" in result.stdout) is (not ci)
    assert "install a JDK" in result.stdout
