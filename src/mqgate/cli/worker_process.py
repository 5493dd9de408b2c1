"""A worker process, as its supervisor controls it."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Sequence

import structlog

__all__ = ["DRAIN", "SERVING", "WorkerProcess"]

# The messages between supervisor and worker: see worker.py.
SERVING = b"serving\n"
DRAIN = b"drain\n"

# A worker that does not serve after this many seconds is killed.
_MAX_START = 120.0
# Seconds after stop_timeout, to close idle connections and stores.
_GRACE = 10.0
_log = structlog.get_logger()


class WorkerProcess:
    """One worker process and the channel to it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._served_from = self._served_to = 0.0
        self.is_serving = False
        self._start_finished = asyncio.Event()
        # Set when the process has ended or was replaced, so that it need not be watched.
        self.is_over = asyncio.Event()
        self.exit = asyncio.create_task(self._run())

    @staticmethod
    async def start(command: Sequence[str], number: int, listener: socket.socket, directory: str) -> "WorkerProcess":
        """Start `command --worker number:listener:channel:directory`, with two inherited file descriptors."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            inherited = (listener.fileno(), theirs.fileno())
            context = ":".join(map(str, (number, *inherited, directory)))
            process = await asyncio.create_subprocess_exec(
                *command, "--worker", context, pass_fds=inherited, start_new_session=True
            )
        return WorkerProcess(process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lifetime(self) -> float:
        """The number of seconds that the process served, after it has ended."""
        return self._served_to - self._served_from

    async def wait_serving(self) -> bool:
        """Wait until the worker serves. Return False if it ended instead."""
        await self._start_finished.wait()
        return self.is_serving

    async def _read_serving(self) -> bool:
        try:
            async with asyncio.timeout(_MAX_START):
                message = await asyncio.get_running_loop().sock_recv(self._channel, len(SERVING))
        except TimeoutError:
            _log.error("worker did not start in time", pid=self.pid, seconds=_MAX_START)
            self.send(signal.SIGKILL)
            return False
        except OSError:
            return False
        return message == SERVING

    def drain(self) -> None:
        """Ask the worker to drain its connections, because another worker has replaced it."""
        self.is_over.set()
        with contextlib.suppress(OSError):
            self._channel.send(DRAIN)

    def send(self, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(sign)

    async def ended(self) -> int:
        """Wait for the end of the process and return its exit code, negative if a signal ended it."""
        await asyncio.wait((self.exit,))
        return self.exit.result()

    async def end_within(self, stop_timeout: float) -> None:
        """Wait for the end of the process, and kill it if it exceeds `stop_timeout`."""
        done, _ = await asyncio.wait((self.exit,), timeout=stop_timeout + _GRACE)
        if not done:
            _log.error("worker killed after stop_timeout", pid=self.pid)
            self.send(signal.SIGKILL)
            await asyncio.wait((self.exit,))

    async def _run(self) -> int:
        # In sequence: the channel must not be closed while it is read.
        self.is_serving = await self._read_serving()
        self._served_from = time.monotonic()
        self._start_finished.set()
        code = await self._process.wait()
        self._served_to = time.monotonic() if self.is_serving else self._served_from
        self._channel.close()
        self.is_over.set()
        return code
