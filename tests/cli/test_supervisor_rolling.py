"""SIGHUP: new processes replace the old ones without failed requests."""

import asyncio
import os
import random
import signal
from contextlib import closing

import pytest
from supervised import Supervised, until

CLIENTS = 24


class Client:
    """Client that keeps its connection as long as the responses allow it, and counts failures."""

    def __init__(self, port: int, thinks: float) -> None:
        self._port = port
        self._thinks = thinks
        self._dice = random.Random(port)
        self.answered = 0
        self.kept = 0
        self.failures: list[str] = []
        self.pids: set[str] = set()

    async def run(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                while await self._ask(reader, writer) and not is_over.is_set():
                    self.kept += 1
                    await asyncio.sleep(self._dice.random() * self._thinks)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.failures.append(repr(error))
            finally:
                writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return False if the connection must not be used again."""
        writer.write(b"GET / HTTP/1.1\r\nhost: mqgate\r\n\r\n")
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        (length,) = [int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        self.pids.add((await reader.readexactly(length)).decode())
        assert head.startswith(b"http/1.1 200")
        self.answered += 1
        return b"connection: close" not in head


@pytest.mark.slow
async def test_a_rolling_restart_under_load_fails_no_request(supervised):
    """Every connection is asked to close; none is reset, and none waits for an ended worker."""
    it: Supervised = await asyncio.to_thread(supervised, workers=2)
    before = {str(pid) for pid in await asyncio.to_thread(it.pids)}
    clients = [Client(it.port, thinks) for thinks in (0.0, 0.05, 0.5) for _ in range(CLIENTS // 3)]
    is_over = asyncio.Event()
    running = asyncio.gather(*(client.run(is_over) for client in clients))

    for times in (1, 2):
        it.tell(signal.SIGHUP)
        await asyncio.to_thread(until, lambda times=times: len(it.events("rolling restart ended")) == times)
    for client in clients:
        client.pids.clear()
    await asyncio.to_thread(until, lambda: all(client.pids for client in clients))
    is_over.set()
    await running

    assert [failure for client in clients for failure in client.failures] == []
    assert all(client.kept > client.answered / 2 for client in clients)
    after = set.union(*(client.pids for client in clients))
    assert len(after) == 2
    assert not after & before


def test_an_idle_connection_of_a_replaced_worker_gets_its_next_response(supervised):
    """The client is between two requests, and is not informed of the restart."""
    it: Supervised = supervised()
    with closing(it.connection()) as connection:
        _, old = connection.ask()
        it.tell(signal.SIGHUP)
        until(lambda: str(it.pid()) != old)

        head, pid = connection.ask()

        assert (pid, "connection: close" in head) == (old, True)
        assert connection.has_ended()


def test_a_parked_receive_of_a_replaced_worker_returns_at_once(supervised, tmp_path):
    """A parked long poll would delay the end of the old process."""
    it: Supervised = supervised()
    with closing(it.connection()) as waiting:
        waiting.send("/wait")
        until((tmp_path / "begun").exists)

        it.tell(signal.SIGHUP)

        assert "connection: close" in waiting.response()[0]
    until(lambda: it.events("rolling restart ended"))


@pytest.mark.slow
def test_a_new_worker_that_does_not_start_leaves_the_old_ones_running(supervised, tmp_path):
    """Invalid settings must not stop a running gateway."""
    it: Supervised = supervised(workers=2)
    before = it.pids()
    (tmp_path / "broken").touch()

    it.tell(signal.SIGHUP)
    until(lambda: it.events("rolling restart given up: new worker did not start"))

    assert it.pids() == before
    (tmp_path / "broken").unlink()
    it.tell(signal.SIGHUP)
    until(lambda: it.events("rolling restart ended"))
    assert not it.pids() & before


@pytest.mark.parametrize("which", ["old", "new"])
def test_a_worker_killed_during_a_rolling_restart_is_replaced(supervised, tmp_path, which):
    """Either the old or the new worker may be killed; the address is still served, and the restart continues."""
    it: Supervised = supervised()
    with closing(it.connection()) as slow:
        slow.send("/slow")
        until((tmp_path / "begun").exists)
        old = it.events("worker started")[0]["pid"]
        it.tell(signal.SIGHUP)
        new = until(lambda: len(it.events("worker started")) == 2 and it.events("worker started")[1]["pid"])
        until(lambda: it.pid() == new)

        os.kill({"old": old, "new": new}[which], signal.SIGKILL)
        if which == "new":
            until(lambda: it.pid() not in {old, new})
            (tmp_path / "go").touch()
            assert slow.response()[1] == str(old)
        else:
            assert slow.has_ended()
    until(lambda: it.events("rolling restart ended"))
    (tmp_path / "go").touch()

    assert it.pid() != old
