"""The attacker: a process of its own, so that it takes no time from the client whose latency is measured.

It reads commands from stdin (`NAME<tab>CONNECTIONS<tab>DRIPS`, or an empty line to stop) and confirms each with a line.
"""

import asyncio
import contextlib
import random
import resource
import subprocess
import sys
from pathlib import Path

import uvloop
from attacks import ATTACKS, Attack, Peer

__all__ = ["Attacker"]

# Not the address of the client with a key, so that limits per address hold for the attacker alone.
_ADDRESS = "127.0.0.2"
_NAMES = {attack.name: attack for attack in ATTACKS}


class Attacker:
    """Starts and stops attacks on one gateway."""

    def __init__(self, port: int, key: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, str(Path(__file__)), str(port), key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, attack: Attack, connections: int, drips: int) -> None:
        """Return when the attack has made nearly all of its connections."""
        self._command(f"{attack.name}\t{connections}\t{drips}")

    def stop(self) -> None:
        """Close all connections of the attack without a goodbye."""
        self._command("")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the attacker ended with {self._process.wait(5)}: {line}")


class _Crowd:
    def __init__(self, port: int, key: str, attack: Attack, connections: int, drips: int) -> None:
        self._port = port
        self._key = key
        self._attack = attack
        self._drip_interval = connections / drips
        self._connected = 0
        self._is_complete = asyncio.Event()
        self._wanted = connections
        self._tasks = [asyncio.create_task(self._attack_again()) for _ in range(connections)]

    async def complete(self) -> None:
        await self._is_complete.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _attack_again(self) -> None:
        # Not all at once, which the accept queue would not take.
        await asyncio.sleep(random.uniform(0, self._wanted / 1_000))
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._attack_once()
            await asyncio.sleep(0 if self._attack.is_flood else random.uniform(0, 1))

    async def _attack_once(self) -> None:
        reader, writer = await self._connect()
        peer = Peer(reader, writer, self._key, self._drip_interval)
        self._connected += 1
        # The kernel drops some connection attempts when the accept queue is full, and repeats them seconds later.
        if self._connected >= 0.9 * self._wanted:
            self._is_complete.set()
        try:
            await self._attack.behave(peer)
        finally:
            peer.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = asyncio.create_task(asyncio.open_connection("127.0.0.1", self._port, local_addr=(_ADDRESS, 0)))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # A cancelled connect leaves its socket open.
            with contextlib.suppress(OSError):
                (await connecting)[1].transport.abort()
            raise


async def _main(port: int, key: str) -> None:
    loop = asyncio.get_running_loop()
    crowd: _Crowd | None = None
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip():
            name, connections, drips = line.rstrip("\n").split("\t")
            crowd = _Crowd(port, key, _NAMES[name], int(connections), int(drips))
            await crowd.complete()
        elif crowd is not None:
            await crowd.stop()
            # Aborted transports close their sockets in the next turn of the loop.
            await asyncio.sleep(0)
        print("done", flush=True)  # noqa: T201 - the confirmation


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_main(int(sys.argv[1]), sys.argv[2]))
