"""Servers and load generators as processes, and what they cost."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server:
    """A child that answers HTTP on a port of its own."""

    def __init__(self, command: list[str], path: str = "/livez") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.began = time.perf_counter()
        self.process = subprocess.Popen([*command, str(self.port)], stdout=subprocess.DEVNULL)
        while True:
            try:
                httpx.get(self.url + path)
                break
            except httpx.TransportError:
                time.sleep(0.01)
        self.start_seconds = time.perf_counter() - self.began

    @property
    def pid(self) -> int:
        return self.process.pid

    def load(self, scenario: str, connections: int, seconds: float, **options: str) -> dict[str, Any]:
        """Run one load against it; the generator's numbers and the server's CPU seconds."""
        before = cpu_seconds(self.pid)
        command = [sys.executable, str(HERE / "load.py"), self.url, scenario, str(connections), str(seconds)]
        found: dict[str, Any] = json.loads(subprocess.check_output([*command, json.dumps(options)]))
        found["server_cpu"] = cpu_seconds(self.pid) - before
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def noop() -> Server:
    return Server([sys.executable, str(HERE / "noop.py")], path="/")


def gateway(directory: str | None = None) -> Server:
    directory = directory or tempfile.mkdtemp(prefix="mqgate-bench-")
    return Server([sys.executable, "-m", "mqgate.cli.main", "serve", "--data-dir", directory, "--port"])


def register(server: Server, path: str, **body: Any) -> None:
    answer = httpx.put(f"{server.url}/v1/{path}", json=body)
    answer.raise_for_status()
