"""What a supervisor promises of its workers, on a small application with the gateway's own server around it."""

import os
import signal
import sys
from contextlib import closing
from typing import Any

import pytest
from supervised import Supervised, until

from mqgate.cli.supervisor import pause_before


def test_every_worker_serves_the_address_and_it_is_said_once(supervised):
    """Whoever waits for that word may send requests, and gets both cores."""
    it = supervised(workers=2)

    pids = it.pids()

    assert it.process.pid not in pids
    assert it.printed().count("serving") == 1


def test_a_killed_worker_is_started_again_and_who_queued_meanwhile_is_answered(supervised):
    """A listener that was closed with its worker would reset them."""
    it = supervised()
    with closing(it.connection()) as witness:
        killed = int(witness.ask()[1])
        os.kill(killed, signal.SIGKILL)
        assert witness.has_ended()

    pid = it.pid()

    assert pid != killed
    (ended,) = it.events("worker ended")
    assert (ended["worker"], ended["pid"], ended["code"], ended["again_in"]) == (1, killed, -signal.SIGKILL, 0)
    until(lambda: [event["pid"] for event in it.events("worker started")] == [killed, pid])


def test_the_other_workers_do_not_notice_a_death(supervised):
    """Their connections and what they work on are their own."""
    it = supervised(workers=2)
    killed, other = it.pids()
    with closing(until(lambda: _to(it, other))) as connection:
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(it.events("worker started")) == 3)

        assert connection.ask()[1] == str(other)


def test_a_worker_that_ends_again_and_again_is_started_after_growing_pauses(supervised, tmp_path):
    """Else a fault at start-up takes a whole core, and fills the log."""
    it = supervised()
    (tmp_path / "frail").touch()
    os.kill(it.pid(), signal.SIGKILL)

    until(lambda: len(it.events("worker ended")) >= 4)

    pauses = [event["again_in"] for event in it.events("worker ended")]
    assert pauses[:4] == [pause_before(times) for times in (1, 2, 3, 4)]
    (tmp_path / "frail").unlink()
    assert it.pid()


def test_pauses_begin_at_nothing_grow_and_have_an_end():
    """One death is an accident; the hundredth in a row is still worth another try."""
    pauses = [pause_before(times) for times in range(1, 100)]

    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert 0 < pauses[1] < pauses[-1] == pauses[-2]


def test_a_worker_that_never_came_up_ends_the_whole_with_its_exit_code(supervised, tmp_path):
    """A service manager tells bad settings, which no restart mends, by the code; and people by the line, said once."""
    (tmp_path / "broken").touch()

    it = supervised(workers=2)

    assert it.ended() == 2
    assert (tmp_path / "err").read_text() == "error: the settings are broken\n"
    assert "serving" not in it.printed()


def test_a_stop_before_anybody_serves_leaves_nobody_behind(tmp_path):
    """A start that takes long, because a database is slow, is when people press Ctrl-C."""
    it = Supervised(tmp_path, sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(1000)")
    it.launch()
    until(lambda: "begun" in it.printed())

    it.tell(signal.SIGINT)

    assert it.ended() == 0
    assert not it.is_listening()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_stop_finishes_what_runs_and_answers_who_waits(supervised, tmp_path, sign):
    """And all of the processes are gone afterwards."""
    it = supervised(workers=2)
    with closing(it.connection()) as slow, closing(it.connection()) as waiting:
        slow.send("/slow")
        until((tmp_path / "begun").exists)
        (tmp_path / "begun").unlink()
        waiting.send("/wait")
        until((tmp_path / "begun").exists)

        it.tell(sign)
        waited, _ = waiting.answer()
        # An answer that comes before its worker is told to stop need not say so.
        until(lambda: len(list(tmp_path.glob("stopping-*"))) == 2)
        (tmp_path / "go").touch()
        finished, _ = slow.answer()

    assert "connection: close" in waited
    assert "connection: close" in finished
    assert it.ended() == 0
    assert not it.is_listening()


def test_an_idle_connections_next_request_is_answered_while_the_gateway_stops(supervised):
    """Closed at once, a request on its way would be reset, and its sender not know whether it was worked on."""
    it = supervised()
    with closing(it.connection()) as connection:
        before, pid = connection.ask()
        it.tell(signal.SIGTERM)
        until(lambda: not it.is_listening())

        head, again = connection.ask()

        assert "connection: close" not in before
        assert "connection: close" in head
        assert again == pid
        assert connection.has_ended()
    assert it.ended() == 0


def test_workers_end_when_their_supervisor_is_killed(supervised, tmp_path):
    """Nobody could stop or renew them any more, and the address would stay taken."""
    it = supervised(workers=2)
    with closing(it.connection()) as slow:
        slow.send("/slow")
        until((tmp_path / "begun").exists)

        it.process.kill()
        until(lambda: not it.is_listening())
        (tmp_path / "go").touch()

        assert "connection: close" in slow.answer()[0]


def test_a_second_interrupt_does_not_wait(supervised, tmp_path):
    """Who presses Ctrl-C twice has decided."""
    it = supervised()
    with closing(it.connection()) as slow:
        slow.send("/slow")
        until((tmp_path / "begun").exists)
        it.tell(signal.SIGINT)
        until(lambda: not it.is_listening())

        it.tell(signal.SIGINT)

        assert it.ended() == 0
        assert not (tmp_path / "go").exists()


def _to(it: Supervised, pid: int) -> Any:
    """A connection that this process accepted, or None."""
    connection = it.connection()
    if connection.ask()[1] == str(pid):
        return connection
    connection.close()
    return None
