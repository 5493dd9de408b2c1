"""Servers and load generators as processes, and their CPU and memory."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from mqgate.stack import find_java, jars

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu() -> float:
    """Return the CPU seconds of all processes of this machine."""
    user, nice, system, _, _, irq, soft_irq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def tree_cpu(root: int, without: int = 0) -> float:
    """Return the CPU seconds of a process tree, including ended processes, without the tree of one child."""
    total = 0.0
    for pid in descendants(root, without):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def descendants(root: int, without: int) -> Iterator[int]:
    yield root
    children: list[str] = []
    for task in Path(f"/proc/{root}/task").iterdir():
        # Threads and children may end at any time.
        with suppress(OSError):
            children += (task / "children").read_text().split()
    for child in children:
        if int(child) != without:
            with suppress(OSError):
                yield from descendants(int(child), without)


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server:
    """A child process that serves HTTP on its own port."""

    def __init__(self, command: list[str], path: str = "/livez", **env: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.began = time.perf_counter()
        command = [*command, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | env)
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

    def load(
        self, scenario: str, connections: int, seconds: float, *, generators: int = 1, **options: str
    ) -> dict[str, Any]:
        """Run one load. Return the sum of the generator results, and the CPU seconds of all server processes."""
        before = tree_cpu(self.pid)
        command = [sys.executable, str(HERE / "load.py"), self.url, scenario]
        command += [str(connections // generators), str(seconds), json.dumps(options)]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(generators)]
        found = _sum([json.loads(each.communicate()[0]) for each in children])
        found["server_cpu"] = tree_cpu(self.pid) - before
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def _sum(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the combined results of concurrent generators."""
    found = {
        name: sum(result[name] for result in results) for name in ("requests", "messages", "empty", "errors", "cpu")
    }
    latencies = sorted(latency for result in results for latency in result["latencies"]) or [0.0]
    found |= {"p50": latencies[len(latencies) // 2], "p99": latencies[int(len(latencies) * 0.99)]}
    found["seconds"] = max(result["seconds"] for result in results)
    found["duplicates"] = _duplicates(tuple(place) for result in results for place in result["delivered"])
    return found


def _duplicates(ranges: Iterable[tuple[str, int, int]]) -> int:
    """Return the number of duplicate deliveries."""
    again, last, reached = 0, "", 0
    for queue, start, end in sorted(ranges):
        if queue != last:
            last, reached = queue, start
        again += max(min(end, reached) - start, 0)
        reached = max(reached, end)
    return again


def noop() -> Server:
    return Server([sys.executable, str(HERE / "noop.py")], path="/")


def gateway(directory: str | None = None, **env: str) -> Server:
    directory = directory or tempfile.mkdtemp(prefix="mqgate-bench-")
    return Server([sys.executable, "-m", "mqgate.cli.main", "serve", "--data-dir", directory, "--port"], **env)


def register(server: Server, path: str, **body: Any) -> None:
    answer = httpx.put(f"{server.url}/v1/{path}", json=body)
    answer.raise_for_status()


class Child:
    """A program that responds to every input line with a JSON object."""

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._log = log

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"again\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a child ended: {self._log.read_text('utf-8', 'replace')[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def java(program: str, directory: Path, *arguments: object) -> Child:
    """Start one of the Java programs of this directory, on the Apache client. Its errors are written to a file."""
    command = [str(find_java()), "-Xmx512m", f"-Duser.home={directory}", "-cp", f"{jars()}/*"]
    source = HERE / "java" / f"{program}.java"
    return Child([*command, str(source), *map(str, arguments)], directory / f"{program}.log")
