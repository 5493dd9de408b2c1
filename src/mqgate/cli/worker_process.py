"""A worker as its supervisor sees it."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Sequence

import structlog

__all__ = ["DRAIN", "SERVING", "WorkerProcess"]

# What the two say to each other: see worker.py.
SERVING = b"serving\n"
DRAIN = b"drain\n"

# A worker that does not serve after so many seconds never will.
_LONGEST_START = 120.0
# Beyond what running requests get: seeing off idle connections, and closing what was open.
_GRACE = 10.0
_log = structlog.get_logger()


class WorkerProcess:
    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self._process = process
        self._line = line
        self._served_from = self._served_to = 0.0
        self.is_serving = False
        self._is_known = asyncio.Event()
        # Ended, or replaced: nobody needs to watch it any longer.
        self.is_over = asyncio.Event()
        self.exit = asyncio.create_task(self._live())

    @staticmethod
    async def start(command: Sequence[str], number: int, listener: socket.socket) -> "WorkerProcess":
        """A process of `command --worker number:listener:line`, with the two file descriptors."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            handed = (listener.fileno(), theirs.fileno())
            place = ":".join(map(str, (number, *handed)))
            process = await asyncio.create_subprocess_exec(
                *command, "--worker", place, pass_fds=handed, start_new_session=True
            )
        return WorkerProcess(process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lifetime(self) -> float:
        """Seconds for which it served, once it has ended."""
        return self._served_to - self._served_from

    async def comes_up(self) -> bool:
        """Wait until it says that it serves; False if it ended instead."""
        await self._is_known.wait()
        return self.is_serving

    async def _hears(self) -> bool:
        try:
            async with asyncio.timeout(_LONGEST_START):
                told = await asyncio.get_running_loop().sock_recv(self._line, len(SERVING))
        except TimeoutError:
            _log.error("worker did not come up", pid=self.pid, seconds=_LONGEST_START)
            self.send(signal.SIGKILL)
            return False
        except OSError:
            return False
        return told == SERVING

    def drain(self) -> None:
        """Tell it that another one serves in its place."""
        self.is_over.set()
        with contextlib.suppress(OSError):
            self._line.send(DRAIN)

    def send(self, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(sign)

    async def ended(self) -> int:
        """Its exit code, once it has one; negative if a signal ended it."""
        await asyncio.wait((self.exit,))
        return self.exit.result()

    async def end_within(self, stop_timeout: float) -> None:
        """Wait for its end; after its time is up, kill it."""
        done, _ = await asyncio.wait((self.exit,), timeout=stop_timeout + _GRACE)
        if not done:
            _log.error("worker was killed: it did not stop in time", pid=self.pid)
            self.send(signal.SIGKILL)
            await asyncio.wait((self.exit,))

    async def _live(self) -> int:
        # One after the other: the line must not be closed while somebody listens on it.
        self.is_serving = await self._hears()
        self._served_from = time.monotonic()
        self._is_known.set()
        code = await self._process.wait()
        self._served_to = time.monotonic() if self.is_serving else self._served_from
        self._line.close()
        self.is_over.set()
        return code
