"""The supervisor of the worker processes, which serve one listening socket each.

The supervisor opens the sockets once and the workers inherit them, because closing one of several listeners of a port
resets the connections queued on it. After a worker has ended, its queue waits for the next worker.

- Start: the first worker starts alone, then the others, so that first-start data is created once. If a worker does not
  start, the supervisor stops all and exits with the exit code of that worker.
- A worker that ends unexpectedly is restarted at once. Repeated ends are followed by a growing pause.
- SIGHUP: one after another, a new process serves on the socket before the old one is drained. New processes load the
  program and the settings again. If a new process does not start, the remaining workers are not replaced.
- SIGTERM, SIGINT: the supervisor stops all workers and waits for them.
- Workers stop when the supervisor has ended (see worker.py), so `kill -9` leaves no process behind.

Workers are new processes, not forks: no thread, event loop or connection is copied, and SIGHUP is enough for an
upgrade. They run in their own sessions, so that the supervisor alone receives Ctrl-C.
"""

import asyncio
import contextlib
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence

import structlog

from mqgate.cli.worker_process import WorkerProcess
from mqgate.http.server.listening import BACKLOG

__all__ = ["Supervisor", "pause_before"]

# A worker that served for this many seconds resets the count of quick ends.
_SETTLED = 10.0
_MAX_PAUSE = 10.0
_log = structlog.get_logger()


def pause_before(quick_ends: int) -> float:
    """Return the seconds to wait before the restart of a worker after `quick_ends` consecutive quick ends."""
    return 0.0 if quick_ends <= 1 else min(0.25 * 2 ** min(quick_ends - 2, 16), _MAX_PAUSE)


class _Slot:
    """One listening socket and its current worker."""

    def __init__(self, number: int, listener: socket.socket) -> None:
        self.number = number
        self.listener = listener
        self.worker: WorkerProcess
        # Held while the worker is replaced.
        self.lock = asyncio.Lock()


class Supervisor:
    """Supervisor that keeps one process of `command` on each listener, and calls `serving` when all serve."""

    def __init__(
        self,
        command: Sequence[str],
        listeners: Sequence[socket.socket],
        *,
        stop_timeout: float,
        serving: Callable[[], None],
    ) -> None:
        self._command = command
        self._slots = [_Slot(number, listener) for number, listener in enumerate(listeners, 1)]
        for listener in listeners:
            # Connections are queued before a worker accepts them.
            listener.listen(BACKLOG)
        self._stop_timeout = stop_timeout
        self._serving = serving
        # Shared by the workers alone, see worker_metrics.py.
        self._directory = ""
        self._alive: set[WorkerProcess] = set()
        self._is_stopping = asyncio.Event()
        self._restart_requested = asyncio.Event()

    async def run(self) -> int:
        """Supervise the workers until a signal stops them, and return the exit code."""
        with self._signals(), tempfile.TemporaryDirectory(prefix="mqgate-") as self._directory:
            watching = asyncio.create_task(self._watch())
            stopping = asyncio.create_task(self._is_stopping.wait())
            try:
                await asyncio.wait((watching, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                watching.cancel()
                await asyncio.wait((watching, stopping))
                await self._stop_all()
        return 0 if watching.cancelled() else watching.result()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._is_stopping.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGHUP, self._restart_requested.set)
        try:
            yield
        finally:
            for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(sign)

    def _interrupt(self) -> None:
        if self._is_stopping.is_set():
            # The second Ctrl-C does not wait.
            for worker in self._alive:
                worker.send(signal.SIGINT)
        self._is_stopping.set()

    async def _watch(self) -> int:
        """Start all workers and keep them running. Return only if one did not start, with its exit code."""
        first, *others = self._slots
        code = await self._start_first(first) or max(await asyncio.gather(*map(self._start_first, others)), default=0)
        if code:
            return code
        self._serving()
        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(self._keep(slot))
            group.create_task(self._restart_on_request())
        return 0

    async def _start_first(self, slot: _Slot) -> int:
        worker = await self._start(slot)
        if worker is None:
            return 1
        slot.worker = worker
        # The exit code is negative if a signal ended the process.
        return 0 if worker.is_serving else max(await worker.ended(), 1)

    async def _start(self, slot: _Slot) -> WorkerProcess | None:
        """Start a worker and wait until it serves or has ended. Return None if no process could be created."""
        try:
            worker = await WorkerProcess.start(self._command, slot.number, slot.listener, self._directory)
        except OSError as error:
            _log.error("worker start failed", worker=slot.number, error=str(error))
            return None
        self._alive.add(worker)
        worker.exit.add_done_callback(lambda _: self._alive.discard(worker))
        if await worker.wait_serving():
            _log.info("worker started", worker=slot.number, pid=worker.pid)
        return worker

    async def _keep(self, slot: _Slot) -> None:
        """Restart the worker of the slot whenever it ends unexpectedly."""
        quick_ends = 0
        while True:
            worker = slot.worker
            await worker.is_over.wait()
            if worker is not slot.worker:
                continue
            quick_ends = quick_ends + 1 if worker.lifetime < _SETTLED else 1
            pause = pause_before(quick_ends)
            code = await worker.ended()
            _log.error("worker ended", worker=slot.number, pid=worker.pid, code=code, again_in=pause)
            await asyncio.sleep(pause)
            async with slot.lock:
                started = await self._start(slot) if worker is slot.worker else slot.worker
                if started is None:
                    await asyncio.sleep(_MAX_PAUSE)
                else:
                    slot.worker = started

    async def _restart_on_request(self) -> None:
        """Replace all workers, one after another, at each SIGHUP."""
        while True:
            await self._restart_requested.wait()
            self._restart_requested.clear()
            _log.info("rolling restart started")
            for slot in self._slots:
                if not await self._replace(slot):
                    _log.error("rolling restart given up: new worker did not start", worker=slot.number)
                    break
            else:
                _log.info("rolling restart ended")

    async def _replace(self, slot: _Slot) -> bool:
        async with slot.lock:
            replacement = await self._start(slot)
            if replacement is None or not replacement.is_serving:
                return False
            old, slot.worker = slot.worker, replacement
        old.drain()
        await old.end_within(self._stop_timeout)
        return True

    async def _stop_all(self) -> None:
        # Workers keep their listeners until they stop accepting. Open here, the sockets would still queue connections.
        for slot in self._slots:
            slot.listener.close()
        workers = list(self._alive)
        for worker in workers:
            worker.send(signal.SIGTERM)
        await asyncio.gather(*(worker.end_within(self._stop_timeout) for worker in workers))
