"""One process for each worker, each on a listening socket of its own, and somebody who watches them.

The supervisor opens the sockets once and hands them down, because closing one of several listeners of a port resets the
connections queued on it. While a worker is dead its queue waits for the next one.

- Coming up: the first worker alone, then the others, so that what is made at a first start is made once. If one does
  not come up, nothing does: its words are on the screen, its exit code is ours.
- A worker that ends unasked is started again at once; one that ends again and again, after a growing pause.
- SIGHUP: one after another, a new process serves on the socket before the old one is told to drain. New processes read
  program and settings anew. If one does not come up, the others stay as they are.
- SIGTERM, SIGINT: all are told to stop, and waited for.
- Workers end by themselves when we are gone (see worker.py), so nothing is left behind by `kill -9`.

Workers are programs started anew, not forks: no thread, loop or connection of ours can be half copied, and an upgrade
needs no more than SIGHUP. They have sessions of their own: Ctrl-C is ours to pass on.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Sequence

import structlog

from mqgate.cli.worker_process import WorkerProcess
from mqgate.http.server.listening import BACKLOG

__all__ = ["Supervisor", "pause_before"]

# Seconds of service after which an end is an accident, not one of a row.
_SETTLED = 10.0
_LONGEST_PAUSE = 10.0
_log = structlog.get_logger()


def pause_before(quick_ends: int) -> float:
    """Seconds before a worker is started again that ended so often in a row without having served for long."""
    return 0.0 if quick_ends <= 1 else min(0.25 * 2 ** min(quick_ends - 2, 16), _LONGEST_PAUSE)


class _Slot:
    """One listening socket and whoever serves on it now."""

    def __init__(self, number: int, listener: socket.socket) -> None:
        self.number = number
        self.listener = listener
        self.worker: WorkerProcess
        # Held by whoever puts another worker here.
        self.turn = asyncio.Lock()


class Supervisor:
    """Keeps one process of `command` on each listener; `serving` is called once all of them are."""

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
            # Connections queue from now on, whoever will accept them.
            listener.listen(BACKLOG)
        self._stop_timeout = stop_timeout
        self._serving = serving
        self._alive: set[WorkerProcess] = set()
        self._is_stopping = asyncio.Event()
        self._is_renewal_wanted = asyncio.Event()

    async def run(self) -> int:
        """Watch over the workers until told to stop; returns the exit code of the whole."""
        with self._signals():
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
        loop.add_signal_handler(signal.SIGHUP, self._is_renewal_wanted.set)
        try:
            yield
        finally:
            for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(sign)

    def _interrupt(self) -> None:
        if self._is_stopping.is_set():
            # Somebody does not want to wait.
            for worker in self._alive:
                worker.send(signal.SIGINT)
        self._is_stopping.set()

    async def _watch(self) -> int:
        """Bring all of them up, then keep them up; returns only if one did not come up, with its exit code."""
        first, *others = self._slots
        code = await self._come_up(first) or max(await asyncio.gather(*map(self._come_up, others)), default=0)
        if code:
            return code
        self._serving()
        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(self._keep(slot))
            group.create_task(self._renew())
        return 0

    async def _come_up(self, slot: _Slot) -> int:
        worker = await self._start(slot)
        if worker is None:
            return 1
        slot.worker = worker
        # One that was ended by a signal has no code of its own.
        return 0 if worker.is_serving else max(await worker.ended(), 1)

    async def _start(self, slot: _Slot) -> WorkerProcess | None:
        """Start a worker on the slot's socket; returns when it serves or has ended. None: no process could be made."""
        try:
            worker = await WorkerProcess.start(self._command, slot.number, slot.listener)
        except OSError as error:
            _log.error("worker could not be started", worker=slot.number, error=str(error))
            return None
        self._alive.add(worker)
        worker.exit.add_done_callback(lambda _: self._alive.discard(worker))
        if await worker.comes_up():
            _log.info("worker serves", worker=slot.number, pid=worker.pid)
        return worker

    async def _keep(self, slot: _Slot) -> None:
        """Start another one whenever the slot's worker ends unasked."""
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
            async with slot.turn:
                started = await self._start(slot) if worker is slot.worker else slot.worker
                if started is None:
                    await asyncio.sleep(_LONGEST_PAUSE)
                else:
                    slot.worker = started

    async def _renew(self) -> None:
        """At each SIGHUP, put a new worker in the place of each one."""
        while True:
            await self._is_renewal_wanted.wait()
            self._is_renewal_wanted.clear()
            _log.info("rolling restart began")
            for slot in self._slots:
                if not await self._replace(slot):
                    _log.error("rolling restart given up: a new worker did not come up", worker=slot.number)
                    break
            else:
                _log.info("rolling restart ended")

    async def _replace(self, slot: _Slot) -> bool:
        async with slot.turn:
            replacement = await self._start(slot)
            if replacement is None or not replacement.is_serving:
                return False
            old, slot.worker = slot.worker, replacement
        old.drain()
        await old.end_within(self._stop_timeout)
        return True

    async def _stop_all(self) -> None:
        # Workers hold their listeners until they stop accepting. Kept here, they would go on queueing connections.
        for slot in self._slots:
            slot.listener.close()
        workers = list(self._alive)
        for worker in workers:
            worker.send(signal.SIGTERM)
        await asyncio.gather(*(worker.end_within(self._stop_timeout) for worker in workers))
