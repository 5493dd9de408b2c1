"""Redis and PostgreSQL of a stack, and the rules of all its servers."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from listening_sockets import listening_addresses

from mqgate.stack import PortTaken, Stack
from mqgate.stack.free_ports import free_port
from mqgate.stack.guard import guard


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port that is in use."""
    with socket.socket() as other:
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        yield port


def _ping(stack: Stack, patience: float = 5.0) -> bytes:
    host, _, port = stack.address("redis").partition(":")
    with socket.create_connection((host, int(port)), patience) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(100)


def _choosing(*ports: int) -> Callable[[Sequence[int]], int]:
    queue = list(ports)
    return lambda others: queue.pop(0) if queue else free_port(others)


def test_redis_and_postgres_start_without_java(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of leases or the registry do not need RocketMQ."""
    monkeypatch.setenv("PATH", "")
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis", "postgres"))

    psql = Path(stack.part("postgres").command[0]).parent / "psql"
    said = subprocess.run(  # noqa: S603 - our own words
        [psql, stack.postgres_url, "-Atc", "select 6 * 7"], capture_output=True, text=True, check=True
    )

    assert _ping(stack) == b"+PONG\r\n"
    assert said.stdout == "42\n"


def test_redis_and_postgres_listen_on_loopback_only(directory: Path) -> None:
    """They have no passwords, so they must not be reachable from the network."""
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis", "postgres"))
    pids = {name: part.pid for name, part in stack.parts().items()}

    addresses = {name: listening_addresses(pid) for name, pid in pids.items() if pid is not None}

    assert addresses.keys() == {"redis", "postgres"}
    assert all(found and all(address.is_loopback for address in found) for found in addresses.values()), addresses


def test_a_cleanly_stopped_stack_restarts_on_its_ports(directory: Path) -> None:
    """Addresses in configurations must stay valid."""
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis", "postgres"))
    before = (stack.redis_url, stack.postgres_url)

    assert stack.down(patience=30) == 2
    assert not stack.is_alive("postgres")
    assert stack.up(brokers=()) is True

    assert (stack.redis_url, stack.postgres_url) == before
    assert stack.up(brokers=()) is False


def test_a_port_that_is_in_use_is_replaced(directory: Path, taken: int) -> None:
    """Another process may take a free port before it is used."""
    stack = Stack(directory, choose_port=_choosing(taken))

    stack.up(brokers=(), parts=("redis",))

    assert stack.part("redis").port != taken
    assert _ping(stack) == b"+PONG\r\n"


def test_a_server_whose_port_is_in_use_reports_the_port(directory: Path) -> None:
    """Running servers rely on the port, so it must not change."""
    stack, other = _with_its_port_taken(directory)

    with other, pytest.raises(PortTaken, match=str(stack.part("redis").port)):
        stack.start("redis")

    stack.start("redis")
    assert _ping(stack) == b"+PONG\r\n"


def _with_its_port_taken(directory: Path) -> tuple[Stack, socket.socket]:
    """Return a stack whose Redis is stopped, and a listener on its port."""
    while True:
        stack = Stack(directory)
        stack.up(brokers=(), parts=("redis",))
        stack.kill("redis")
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", stack.part("redis").port))
        except OSError:
            other.close()
            stack.down()
            continue
        other.listen()
        return stack, other


def test_a_paused_server_does_not_respond_and_a_resumed_one_does(directory: Path) -> None:
    """Tests need a server that hangs with open connections."""
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis",))

    stack.pause("redis")
    with pytest.raises(TimeoutError):
        _ping(stack, patience=0.2)
    stack.resume("redis")

    assert _ping(stack) == b"+PONG\r\n"


def test_a_process_with_a_reused_id_is_not_stopped(directory: Path) -> None:
    """After a reboot, stored process ids may belong to other processes."""
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis",))
    stack.kill("redis")
    file = directory / "stack.json"
    state = json.loads(file.read_text())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        state["parts"][0]["pid"] = stranger.pid
        file.write_text(json.dumps(state))

        assert not stack.is_alive("redis")
        assert stack.down() == 0
        stack.kill("redis")

        assert stranger.poll() is None
        stranger.kill()


def test_a_guarded_stack_is_stopped_with_its_owner(directory: Path) -> None:
    """A test run that is killed must not leave servers behind."""
    stack = Stack(directory)
    stack.up(brokers=(), parts=("redis",))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        guard(stack, owner.pid)
        assert stack.is_alive("redis")
        owner.kill()

    deadline = time.monotonic() + 30
    while stack.is_alive("redis") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not stack.is_alive("redis")
