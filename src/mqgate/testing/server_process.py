"""`mqgate serve` as a process of its own, to be stopped or killed."""

import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

_PATIENCE = 30.0


class ServerProcess:
    """One gateway on one data directory; started again after a kill, it has the same address."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.directory = directory
        self.arguments = arguments
        self.environment = environment
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start it first"
        return self._process

    def start(self) -> "ServerProcess":
        """Start and return when it answers; RuntimeError if it ends, or does not come up in 30 s."""
        command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--port", str(self.port)]
        command += ["--data-dir", str(self.directory), *self.arguments]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command, env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
            if self._is_live():
                return self
            time.sleep(0.02)
        self.kill()
        raise RuntimeError("the server did not come up in 30 s")

    def _is_live(self) -> bool:
        """Asked again and again: not with a client that gets ready for TLS each time, which takes 30 ms."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """As a power cut for the process: SIGKILL, no goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.terminate()
        return self.process.wait(_PATIENCE)
