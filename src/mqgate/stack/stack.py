"""A stack: a set of servers in one directory, which every process can open.

No state is kept in memory. `stack.json` lists the servers with their ports and process ids, and is changed under a
lock. A server keeps its ports and its store when it is killed and started again. `up` chooses other ports only if no
server of the stack runs and another process has taken a port.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, Signals

from mqgate.stack import readiness
from mqgate.stack.broker_spec import BrokerSpec
from mqgate.stack.errors import PartFailed, PortTaken, StackError
from mqgate.stack.free_ports import free_port
from mqgate.stack.lock import locked
from mqgate.stack.part import Part, load_parts, save_parts
from mqgate.stack.plan import NAME_SERVER, Extra, StackPlan
from mqgate.stack.postgres_part import user_name
from mqgate.stack.process import end, is_running, launch

__all__ = ["Stack"]

TWO_BROKERS = (BrokerSpec(name="broker-a"), BrokerSpec(name="broker-b"))
# Signals of a clean stop, which takes brokers up to 20 s. PostgreSQL waits for its clients at SIGTERM.
_CLEAN = {"postgres": SIGINT}
# Signals of a quick stop. RocketMQ stores survive SIGKILL. Child processes of PostgreSQL would outlive it.
_QUICK = {"postgres": SIGQUIT, "redis": SIGTERM}
_QUICK_TIMEOUT = 10.0
_START_TIMEOUT = 120.0
_TRIES = 3
# Brokers refuse writes above 90 %, whatever their settings.
_MAX_DISK_USE = 0.88


class Stack:
    """A set of servers. `up` and `down` act on all, `start`, `stop`, `kill` and `pause` on one, and all block."""

    def __init__(
        self,
        directory: Path,
        *,
        progress: Callable[[str], None] = lambda _: None,
        choose_port: Callable[[Sequence[int]], int] = free_port,
    ) -> None:
        self.directory = directory.resolve()
        self._progress = progress
        self._choose_port = choose_port
        self._state = self.directory / "stack.json"
        self._lock = self.directory / "stack.lock"

    @classmethod
    def open(cls, directory: Path, *, progress: Callable[[str], None] = lambda _: None) -> "Stack":
        """Return the existing stack of the directory. Raise StackError if there is none."""
        stack = cls(directory, progress=progress)
        if not stack._state.exists():
            raise StackError(f"there is no stack in {directory}: create one with mqgate stack up")
        return stack

    def up(
        self,
        brokers: Sequence[BrokerSpec] = TWO_BROKERS,
        parts: Sequence[Extra] = (),
    ) -> bool:
        """Start the given servers and those of an earlier call. Return False if all were running.

        Without brokers, no name server is started and Java is not needed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        _check_disk(self.directory)
        with locked(self._lock):
            before = self.parts()
            alive = {name: part for name, part in before.items() if _runs(part)}
            plan = StackPlan(brokers, parts, before)
            for attempt in range(_TRIES):
                choose = partial(self._port, {} if attempt else before)
                wanted = plan.parts(self.directory, alive, choose, self._progress)
                save_parts(self._state, wanted)
                try:
                    self._start_all([part for name, part in wanted.items() if name not in alive])
                    break
                except BaseException as error:
                    self._end_all([part for name, part in self.parts().items() if name not in alive], patience=0.0)
                    if alive or not isinstance(error, PortTaken) or attempt == _TRIES - 1:
                        raise
        return wanted.keys() != alive.keys()

    def down(self, *, patience: float = 0.0) -> int:
        """Stop all servers and return how many were running. With patience, stop them cleanly. Data is kept."""
        if not self._state.exists():
            return 0
        with locked(self._lock):
            return self._end_all(list(self.parts().values()), patience=patience)

    def start(self, name: str) -> None:
        """Start one server with its ports and its store, unless it runs, and wait until it is ready."""
        with locked(self._lock):
            if not _runs(self.part(name)):
                self._launch(self.part(name))
        self._wait(name)

    def stop(self, name: str, *, patience: float = 60.0) -> None:
        """Stop one server cleanly."""
        with locked(self._lock):
            self._end_all([self.part(name)], patience=patience)

    def kill(self, name: str) -> None:
        """Kill one server with SIGKILL."""
        with locked(self._lock):
            part = self.part(name)
            end(part.pid, part.command, SIGKILL, patience=_QUICK_TIMEOUT)
            self._save(replace(part, pid=None))

    def pause(self, name: str) -> None:
        """Suspend one server: it keeps its connections and does not respond until `resume`."""
        self._signal(name, SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, SIGCONT)

    def is_alive(self, name: str) -> bool:
        return _runs(self.part(name))

    def is_ready(self, name: str) -> bool:
        """Return whether a server runs and serves; a broker must also be registered at the name server."""
        return self.is_alive(name) and readiness.is_ready(
            self.part(name), self.log(name), self.parts().get(NAME_SERVER)
        )

    def parts(self) -> dict[str, Part]:
        return load_parts(self._state)

    def part(self, name: str) -> Part:
        try:
            return self.parts()[name]
        except KeyError:
            raise PartFailed(f"there is no {name} in the stack of {self.directory}") from None

    def log(self, name: str) -> Path:
        """Return the output file of a server since its last start."""
        return self.directory / name / "out.log"

    def address(self, name: str) -> str:
        return self.part(name).address

    @property
    def name_server(self) -> str:
        return self.address(NAME_SERVER)

    @property
    def brokers(self) -> dict[str, str]:
        """The addresses of the brokers by name."""
        return {name: part.address for name, part in self.parts().items() if part.kind == "broker"}

    @property
    def redis_url(self) -> str:
        return f"redis://{self.address('redis')}/0"

    @property
    def postgres_url(self) -> str:
        return f"postgresql://{user_name}@{self.address('postgres')}/postgres"

    def _port(self, before: dict[str, Part], name: str, others: Sequence[int]) -> int:
        return before[name].port if name in before else self._choose_port(others)

    def _start_all(self, parts: Sequence[Part]) -> None:
        # A broker that finds no name server at its start registers only at the next interval.
        for kinds in ({"name-server"}, {"broker", "proxy", "redis", "postgres"}):
            chosen = [part for part in parts if part.kind in kinds]
            if chosen:
                self._progress(f"starting {', '.join(part.name for part in chosen)}")
            for part in chosen:
                self._launch(part)
            for part in chosen:
                self._wait(part.name)

    def _launch(self, part: Part) -> None:
        pid = launch(part.command, log=self.log(part.name), user=part.user)
        self._save(replace(part, pid=pid))

    def _signal(self, name: str, sign: Signals) -> None:
        part = self.part(name)
        if part.pid is not None and _runs(part):
            os.kill(part.pid, sign)

    def _save(self, part: Part) -> None:
        save_parts(self._state, self.parts() | {part.name: part})

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not self.is_ready(name):
            if not self.is_alive(name):
                raise readiness.failure(self.part(name), self.log(name), "ended")
            if time.monotonic() > deadline:
                raise readiness.failure(self.part(name), self.log(name), f"is not ready after {_START_TIMEOUT:.0f} s")
            time.sleep(0.1)
            readiness.speed_up(self.part(name), self.log(name))

    def _end_all(self, parts: Sequence[Part], *, patience: float) -> int:
        def end_one(part: Part) -> None:
            if patience:
                end(part.pid, part.command, _CLEAN.get(part.kind, SIGTERM), patience=patience)
            else:
                end(part.pid, part.command, _QUICK.get(part.kind, SIGKILL), patience=_QUICK_TIMEOUT)

        running = [part for part in parts if _runs(part)]
        # A broker unregisters at its name server, so the name server is stopped last.
        for is_name_server in (False, True):
            chosen = [part for part in running if (part.kind == "name-server") is is_name_server]
            with ThreadPoolExecutor(max_workers=max(1, len(chosen))) as pool:
                list(pool.map(end_one, chosen))
        for part in parts:
            self._save(replace(part, pid=None))
        return len(running)


def _runs(part: Part) -> bool:
    return is_running(part.pid, part.command)


def _check_disk(directory: Path) -> None:
    disk = os.statvfs(directory)
    used = disk.f_blocks - disk.f_bfree
    if used / (used + disk.f_bavail) > _MAX_DISK_USE:
        raise StackError(f"the disk of {directory} is nearly full, and brokers refuse writes: free some space")
