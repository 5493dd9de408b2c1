"""How `sub` ends: a process of its own, a real signal, a real pipe.

The bodies are larger than a pipe holds, so a `sub` whose reader stops reading is known to stand in the middle
of its second message: the first is printed, the others are not.
Unbuffered, as in many containers, a write may take only a part of a message.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from mqgate.cli.message_line import as_body
from mqgate.cli.subscription import ReceiveOptions, Subscription
from mqgate.client import Client, GatewayUnreachable

BODIES = [letter * 200_000 for letter in "abc"]
STOPS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])


@pytest.fixture(params=["queue", "message"])
def group(request: pytest.FixtureRequest, names: tuple[str, str, str], workers: str) -> str:
    """Return a group in each of two modes: one receipt per batch, or one per message."""
    return names[2] if request.param == "queue" else workers


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _sub(url: str, group: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    program = "from mqgate.cli.main import main; main()"
    with subprocess.Popen(  # noqa: S603 - our own interpreter with our own words
        [sys.executable, "-c", program, "--url", url, "sub", group, "--body"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
        # Where the tests run in the background, Ctrl-C is ignored, and so it would be in every child.
        preexec_fn=_heed_ctrl_c,  # noqa: PLW1509 - one call, no locks
    ) as process:
        try:
            yield process
        finally:
            # If a test fails before it stops the process, the exit below would wait for it forever.
            process.kill()


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def stuck(
    request: pytest.FixtureRequest, gateway_url: str, names: tuple[str, str, str], group: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Return a `sub` that has printed the first of three messages and is blocked in the second."""
    with Client(gateway_url) as client:
        client.publish_batch(names[0], [{"body": body} for body in BODIES], producer=names[1])
    with _sub(gateway_url, group, PYTHONUNBUFFERED=request.param) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == BODIES[0].encode() + b"\n"
        assert process.stdout.read(1) == b"b"
        yield process


@pytest.fixture
def waiting(gateway_url: str, names: tuple[str, str, str], group: str) -> Iterator[subprocess.Popen[bytes]]:
    """Return a `sub` that has printed a message and waits in the next receive."""
    with Client(gateway_url) as client, _sub(gateway_url, group) as process:
        client.publish(names[0], "first")
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        deadline = time.monotonic() + 30
        while client.lag(group)["lag"]:
            assert time.monotonic() < deadline, "what was printed was not acknowledged"
        yield process


def _rest(url: str, group: str) -> list[str]:
    with Client(url) as client:
        return [message["body"] for message in client.receive(group)["messages"]]


@STOPS
def test_a_stop_acknowledges_printed_messages_and_releases_the_rest(stuck, number, gateway_url, group):
    """Printed messages are not delivered again; the others are delivered at once, before their lease expires."""
    stuck.send_signal(number)
    _, errors = stuck.communicate(timeout=30)

    assert (stuck.returncode, errors) == (130, b"")
    assert _rest(gateway_url, group) == BODIES[1:]


def test_a_closed_pipe_ends_sub_like_a_signal(stuck, gateway_url, group):
    """`mqgate sub | head` is a usual way to read a few messages."""
    stuck.stdout.close()
    _, errors = stuck.communicate(timeout=30)

    assert (stuck.returncode, errors) == (1, b"")
    assert _rest(gateway_url, group) == BODIES[1:]


def test_a_message_that_arrives_during_the_wait_is_printed(waiting, gateway_url, names):
    """A long poll must return as soon as a message arrives."""
    with Client(gateway_url) as client:
        client.publish(names[0], "second")

    assert waiting.stdout.readline() == b"second\n"
    waiting.terminate()
    waiting.communicate(timeout=30)


@STOPS
def test_a_stop_ends_the_wait_and_leases_nothing(waiting, number, gateway_url, names, group):
    """The gateway must not lease the next message to a client that has ended."""
    waiting.send_signal(number)
    printed, errors = waiting.communicate(timeout=10)
    with Client(gateway_url) as client:
        client.publish(names[0], "second")
        (message,) = client.receive(group)["messages"]

    assert (waiting.returncode, printed, errors) == (130, b"", b"")
    assert (message["body"], message["delivery"]) == ("second", 1)


class LosesAnAnswer(Client):
    """A client that is interrupted after the gateway granted a lease, before the response is read."""

    def __init__(self, url: str, error: BaseException) -> None:
        super().__init__(url)
        self.errors = [None, error]

    def receive(self, *arguments, **options):
        response = super().receive(*arguments, **options)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return response


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), GatewayUnreachable("cut", is_outcome_unknown=True)],
    ids=["Ctrl-C", "connection lost"],
)
def test_a_lost_response_is_requested_again_and_its_leases_are_released(gateway_url, names, group, error, capfdbinary):
    """Ctrl-C often interrupts a receive, whose messages must not wait for the expiry of the lease."""
    options = ReceiveOptions(max_messages=1, wait=timedelta(seconds=20), visibility=None, client_id=None, is_acked=True)
    with LosesAnAnswer(gateway_url, error) as client:
        client.publish_batch(names[0], [{"body": "printed"}, {"body": "lost"}])
        subscription = Subscription(client, group, options, as_body)

        with pytest.raises(type(error)):
            subscription.forever()
        subscription.finish()

        assert capfdbinary.readouterr() == (b"printed\n", b"")
        assert client.lag(group)["leased"] == 0
        assert [message["body"] for message in client.receive(group)["messages"]] == ["lost"]


def test_an_unreachable_gateway_is_reported_once_with_possible_redeliveries(gateway_url, names, group, capfdbinary):
    """Printed messages could not be acknowledged, and only the user can handle duplicates."""
    options = ReceiveOptions(max_messages=1, wait=timedelta(seconds=20), visibility=None, client_id=None, is_acked=True)

    class LosesItsGateway(Client):
        is_gone = False

        def receive(self, *arguments, **options):
            if self.is_gone:
                raise GatewayUnreachable("cut", is_outcome_unknown=True)
            self.is_gone = True
            return super().receive(*arguments, **options)

    with LosesItsGateway(gateway_url) as client:
        client.publish(names[0], "printed")
        subscription = Subscription(client, group, options, as_body)

        with pytest.raises(GatewayUnreachable):
            subscription.forever()
        subscription.finish()

    printed, errors = capfdbinary.readouterr()
    assert printed == b"printed\n"
    assert errors == b"note: the messages printed last may be delivered again: cut\n"
