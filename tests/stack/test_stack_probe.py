"""Readiness of a broker: it is listed, and it reports its runtime information."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import NO_TIMERS
from mqgate.stack import BrokerSpec, Stack
from mqgate.stack.part import Part
from mqgate.stack.probe import is_listed, is_starting, register
from mqgate.stack.readiness import speed_up


@pytest.mark.slow
@pytest.mark.rocketmq
def test_an_unlisted_broker_is_listed_after_it_registers(rocketmq: Stack, directory: Path) -> None:
    """A broker that was not connected at its start would register only ten seconds later."""
    stack = Stack(directory)
    stack.up((BrokerSpec(name="lonely", settings={**NO_TIMERS, "registerNameServerPeriod": "60000"}),))
    stack.kill("namesrv")
    stack.start("namesrv")
    server, broker = ("127.0.0.1", stack.part("namesrv").port), stack.part("lonely")
    assert not is_listed(server, "lonely", broker.address)
    assert not stack.is_ready("lonely")

    tries = 0
    while not is_listed(server, "lonely", broker.address) and tries < 30:
        register(("127.0.0.1", broker.port))
        time.sleep(0.1)
        tries += 1

    assert tries < 30
    stack.start("lonely")
    assert stack.is_ready("lonely")


CODES = (1, 0, 16, 0, 0)
Asked = list[dict[str, object]]


@pytest.fixture
def broker() -> Iterator[tuple[Asked, tuple[str, int]]]:
    """Return the requests to a broker that responds with CODES, and its address."""
    asked: Asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for code in CODES:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as stream:
                    total, size = struct.unpack(">II", stream.read(8))
                    received = stream.read(total - 4)
                    asked.append({**json.loads(received[:size]), "body": received[size:].decode()})
                    header = json.dumps({"code": code}).encode()
                    connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked, listener.getsockname()
        thread.join(10)


def test_only_a_broker_with_a_system_error_is_starting(broker: tuple[Asked, tuple[str, int]], tmp_path: Path) -> None:
    """A broker that refuses the request is ready; registering must not change its settings."""
    asked, address = broker

    found = [is_starting(address) for _ in range(3)]
    register(address)
    read_only = BrokerSpec(name="read-only", settings={"brokerPermission": "4"})
    (tmp_path / "out.log").write_text("boot success")
    part = Part(
        name="read-only",
        kind="broker",
        port=address[1],
        command=(),
        ready_line="boot success",
        asked=read_only.record(),
    )
    speed_up(part, tmp_path / "out.log")

    assert found == [True, False, False]
    orders = [(message["code"], message["body"]) for message in asked[-3:]]
    assert orders == [(28, ""), (25, "brokerPermission=6"), (25, "brokerPermission=4")]


def test_registering_an_unreachable_broker_is_no_error() -> None:
    """The broker may have ended again, which the readiness check detects."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        register(("127.0.0.1", free.getsockname()[1]))
