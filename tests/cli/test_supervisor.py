"""The guarantees of the supervisor, with a small application on the HTTP server of the gateway."""

import os
import signal
import sys
from contextlib import closing
from typing import Any

import pytest
from supervised import Supervised, until

from mqgate.cli.supervisor import pause_before


def test_every_worker_serves_the_address_and_readiness_is_reported_once(supervised):
    """A client that waits for the report can use all workers."""
    it = supervised(workers=2)

    pids = it.pids()

    assert it.process.pid not in pids
    assert it.printed().count("serving") == 1


def test_a_killed_worker_is_restarted_and_queued_connections_are_served(supervised):
    """A listener that is closed with its worker would reset queued connections."""
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


def test_the_end_of_a_worker_does_not_affect_the_others(supervised):
    """Each worker has its own connections and requests."""
    it = supervised(workers=2)
    killed, other = it.pids()
    with closing(until(lambda: _to(it, other))) as connection:
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(it.events("worker started")) == 3)

        assert connection.ask()[1] == str(other)


def test_a_worker_that_ends_repeatedly_is_restarted_after_growing_pauses(supervised, tmp_path):
    """A fault at start would otherwise use a whole core and fill the log."""
    it = supervised()
    (tmp_path / "frail").touch()
    os.kill(it.pid(), signal.SIGKILL)

    until(lambda: len(it.events("worker ended")) >= 4)

    pauses = [event["again_in"] for event in it.events("worker ended")]
    assert pauses[:4] == [pause_before(times) for times in (1, 2, 3, 4)]
    (tmp_path / "frail").unlink()
    assert it.pid()


def test_pauses_start_at_zero_and_have_a_maximum():
    """A single end needs no pause, and a worker is never given up."""
    pauses = [pause_before(times) for times in range(1, 100)]

    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert 0 < pauses[1] < pauses[-1] == pauses[-2]


def test_a_worker_that_does_not_start_ends_the_supervisor_with_its_exit_code(supervised, tmp_path):
    """A service manager recognises invalid settings by the exit code, and people by the single error line."""
    (tmp_path / "broken").touch()

    it = supervised(workers=2)

    assert it.ended() == 2
    assert (tmp_path / "err").read_text() == "error: the settings are broken\n"
    assert "serving" not in it.printed()


def test_a_stop_during_the_start_leaves_no_process(tmp_path):
    """Users press Ctrl-C when a start takes long."""
    it = Supervised(tmp_path, sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(1000)")
    it.launch()
    until(lambda: "begun" in it.printed())

    it.tell(signal.SIGINT)

    assert it.ended() == 0
    assert not it.is_listening()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_stop_finishes_running_requests_and_answers_parked_ones(supervised, tmp_path, sign):
    """No request fails at a stop, and no process remains."""
    it = supervised(workers=2)
    with closing(it.connection()) as slow, closing(it.connection()) as waiting:
        slow.send("/slow")
        until((tmp_path / "begun").exists)
        (tmp_path / "begun").unlink()
        waiting.send("/wait")
        until((tmp_path / "begun").exists)

        it.tell(sign)
        waited, _ = waiting.response()
        # A response before the stop of its worker need not have the header.
        until(lambda: len(list(tmp_path.glob("stopping-*"))) == 2)
        (tmp_path / "go").touch()
        finished, _ = slow.response()

    assert "connection: close" in waited
    assert "connection: close" in finished
    assert it.ended() == 0
    assert not it.is_listening()


def test_the_next_request_of_an_idle_connection_is_served_while_the_gateway_stops(supervised):
    """If the connection were closed at once, the client would not know whether its request was executed."""
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


def test_workers_stop_when_their_supervisor_is_killed(supervised, tmp_path):
    """Orphaned workers could not be stopped, and would keep the port in use."""
    it = supervised(workers=2)
    with closing(it.connection()) as slow:
        slow.send("/slow")
        until((tmp_path / "begun").exists)

        it.process.kill()
        until(lambda: not it.is_listening())
        (tmp_path / "go").touch()

        assert "connection: close" in slow.response()[0]


def test_a_second_interrupt_does_not_wait(supervised, tmp_path):
    """The second Ctrl-C requests an immediate stop."""
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
    """Return a connection that this process accepted, or None."""
    connection = it.connection()
    if connection.ask()[1] == str(pid):
        return connection
    connection.close()
    return None
