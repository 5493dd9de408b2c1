"""A process that takes lease steps and is killed at one of the statements of its writing thread.

Run as a program, it plays the same steps in a fresh data directory per statement: killed at the first statement, at the
second and so on, until a run ends by itself. Each run writes down only what was returned.
"""

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.core.backoff import NO_BACKOFF
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import AcquireResult, Lease, PullReport, Settlement, Verb
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ask, opened
from mqgate.testing.samples import a_group, queues

MESSAGES = 4
QUEUES = 5


def group_of(mode: str) -> Group:
    return a_group(mode=Mode(mode), backoff=NO_BACKOFF)


class Run:
    """The steps of one group. `notes` has a line per response: leases that were granted, acked or released."""

    def __init__(self, store: SqliteLeaseStore, group: Group, notes: TextIO) -> None:
        self.store = store
        self.group = group
        self.notes = notes

    def note(self, what: str, *leases: Lease) -> None:
        for lease in leases:
            print(json.dumps([what, lease.queue, lease.start, lease.next]), file=self.notes, flush=True)

    async def receive(self, *carried: Lease, **wish: Any) -> list[Lease]:
        acquired: AcquireResult = await ask(
            self.store,
            self.group,
            max_count=2,
            carrying=[Settlement(Verb.ACK, lease) for lease in carried],
            **wish,
        )
        leases = [grant.lease for grant in acquired.grants]
        self.note("acked", *carried)
        self.note("granted", *leases)
        return leases

    async def play(self) -> None:
        await opened(self.store, self.group, queues(*[MESSAGES] * QUEUES))
        (first, *_), (second, *_) = await asyncio.gather(self.receive(), self.receive(attempt="a1"))
        await self.receive(*self.receipts(first), attempt="a2")
        nacked, *rest = self.receipts(second)
        await self.store.settle(self.group, [Settlement(Verb.NACK, nacked, delay=timedelta(hours=1))])
        self.note("nacked", nacked)
        for lease in rest:
            await self.store.settle(self.group, [Settlement(Verb.EXTEND, lease), Settlement(Verb.ACK, lease)])
            self.note("acked", lease)
        acquired = await ask(self.store, self.group, max_count=2)
        await self.store.report_pull(self.group, [PullReport(grant, grant.lease.start) for grant in acquired.grants])
        await self.receive()

    def receipts(self, lease: Lease) -> list[Lease]:
        """Return the leases as receipts carry them: in queue mode one for the batch."""
        if self.group.mode is Mode.QUEUE:
            return [lease]
        return [lease._replace(start=offset, next=offset + 1) for offset in range(lease.start, lease.next)]


def runs_in(directory: Path) -> list[Path]:
    """Return the data directories of the runs."""
    return sorted(directory.iterdir(), key=lambda run: int(run.name))


def read_notes(directory: Path) -> list[str]:
    """Return the notes of a run, none if it was killed before the first response."""
    notes = directory / "notes"
    return notes.read_text().splitlines() if notes.exists() else []


async def play(directory: Path, mode: str, kill_at: int) -> None:
    engine = Engine(directory, synchronous="normal", wall_ms=ManualClock())
    numbers = count(1)

    def trace(*_: object) -> bool:
        if next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    engine._writer._connection.set_exec_trace(trace)
    with (directory / "notes").open("w") as notes:
        await Run(SqliteLeaseStore(engine), group_of(mode), notes).play()
    await engine.close()


def main(directory: Path, mode: str) -> None:
    for kill_at in count(1):
        child = os.fork()
        if not child:
            asyncio.run(play(directory / f"{kill_at}", mode, kill_at))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
