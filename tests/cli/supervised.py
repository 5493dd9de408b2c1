"""A supervisor and its workers as processes that tests control."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 100.0
HERE = Path(__file__).parent
SMALL = (sys.executable, str(HERE / "small_worker.py"))


def until(happened: Callable[[], Any]) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


class Supervised:
    """One supervisor and its workers, with their output in a file."""

    def __init__(self, directory: Path, *command: str, workers: int = 1) -> None:
        self.directory = directory
        self.workers = workers
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes]
        supervise = (sys.executable, str(HERE / "supervise.py"), str(self.port), str(workers))
        self.program = (*supervise, *(command or (*SMALL, str(directory))))
        self.greeting = "serving"

    def start(self) -> "Supervised":
        """Start, and return when it serves or has ended."""
        self.launch()
        until(lambda: self.process.poll() is not None or self.has_greeted())
        return self

    def launch(self) -> None:
        with (self.directory / "out").open("wb") as out, (self.directory / "err").open("wb") as err:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
                self.program, stdout=out, stderr=err, cwd=self.directory
            )

    def has_greeted(self) -> bool:
        return any(line.startswith(self.greeting) for line in self.printed())

    def printed(self) -> list[str]:
        return (self.directory / "out").read_text("utf-8").splitlines()

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of an event."""
        lines = [json.loads(line) for line in self.printed() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def tell(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def pid(self) -> int:
        """Return the process that serves a new connection."""
        connection = self.connection()
        try:
            return int(connection.ask()[1])
        finally:
            connection.close()

    def pids(self) -> set[int]:
        """Return all processes that serve, found by repeated connections."""
        found: set[int] = set()
        return until(lambda: found.add(self.pid()) or (len(found) == self.workers and found))

    def connection(self) -> "Connection":
        return Connection(self.port)

    def is_listening(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        until(lambda: not self.is_listening())


class Connection:
    """One open connection that a test controls at byte level."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def send(self, path: str = "/") -> None:
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nhost: mqgate\r\n\r\n".encode())

    def response(self) -> tuple[str, str]:
        """Return head and body of one response."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._read()
        head, _, body = received.partition(b"\r\n\r\n")
        (length,) = [int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
        while len(body) < length:
            body += self._read()
        return head.decode().lower(), body.decode()

    def ask(self, path: str = "/") -> tuple[str, str]:
        self.send(path)
        return self.response()

    def has_ended(self) -> bool:
        """Wait until the server closes. Return True if it sent no response."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bytes:
        received = self._socket.recv(65_536)
        assert received, "closed without a response"
        return received
