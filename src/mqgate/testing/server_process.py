"""`mqgate serve` as a separate process that tests can stop or kill."""

import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

_PATIENCE = 30.0


class ServerProcess:
    """One gateway on one data directory. It keeps its address when it is started again."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.directory = directory
        self.arguments = arguments
        self.environment = environment
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        # Where the log is written.
        self.stdout: int | IO[bytes] = subprocess.DEVNULL
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start it first"
        return self._process

    def start(self) -> "ServerProcess":
        """Start the gateway and wait until it responds. Raise RuntimeError if it ends, or after 30 s."""
        command = [sys.executable, "-m", "mqgate.cli.main", "serve", "--port", str(self.port)]
        command += ["--data-dir", str(self.directory), *self.arguments]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command, env={**os.environ, **self.environment}, stdout=self.stdout
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
        """Return whether the gateway responds. A full HTTP client would take 30 ms to prepare TLS on each call."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop the gateway and return its exit code."""
        self.process.terminate()
        return self.process.wait(_PATIENCE)
