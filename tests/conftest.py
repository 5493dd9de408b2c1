"""What most tests stand on: a gateway in this process with a hand-moved clock, or one of its own behind a socket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqgate import bootstrap
from mqgate.settings import Settings, SqliteSettings
from mqgate.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=3600.0))


@pytest.fixture
async def gateway(settings: Settings, clock: ManualClock) -> AsyncIterator[bootstrap.Gateway]:
    async with bootstrap.gateway(settings, wall_ms=clock) as built:
        yield built


@pytest.fixture
async def api(gateway: bootstrap.Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP without a socket."""
    transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://mqgate") as client:
        yield client


class ServerProcess:
    """`mqgate serve` as a process of its own."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.directory = directory
        self.arguments = arguments
        self.environment = environment
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ServerProcess":
        command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--port", str(self.port)]
        command += ["--data-dir", str(self.directory), *self.arguments]
        self.process = subprocess.Popen(command, env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                pytest.fail(f"the server ended with {self.process.returncode}")
            try:
                if httpx.get(f"{self.url}/livez").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.02)
        return pytest.fail("the server did not come up in 30 s")

    def kill(self) -> None:
        """As a power cut for the process: SIGKILL, no goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture(scope="session")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An open gateway with nothing registered, for tests that need a socket."""
    server = ServerProcess(tmp_path_factory.mktemp("gateway")).start()
    yield server.url
    server.stop()


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    """Register something, or fail with what the gateway said."""
    answer = await api.put(f"/v1/{path}", json=body)
    assert answer.status_code in {200, 201}, answer.text
    return dict(answer.json())
