"""How `sub` ends: a process of its own, a real signal, a real pipe.

The bodies are larger than a pipe holds, so a `sub` whose reader stops reading is known to stand in the middle
of its second message: the first is printed, the others are not.
Unbuffered, as in many containers, a write may take only a part of a message.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mqgate.client import Client

BODIES = [letter * 200_000 for letter in "abc"]


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def stuck(
    request: pytest.FixtureRequest, gateway_url: str, names: tuple[str, str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A `sub` that printed the first of three messages and cannot finish the second."""
    topic, producer, group = names
    with Client(gateway_url) as client:
        client.publish_batch(topic, [{"body": body} for body in BODIES], producer=producer)
    program = "from mqgate.cli.main import main; main()"
    with subprocess.Popen(  # noqa: S603 - our own interpreter with our own words
        [sys.executable, "-c", program, "--url", gateway_url, "sub", group, "--body"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": request.param},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == BODIES[0].encode() + b"\n"
        assert process.stdout.read(1) == b"b"
        yield process


def _rest(url: str, group: str) -> list[str]:
    with Client(url) as client:
        return [message["body"] for message in client.receive(group)["messages"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_stop_acknowledges_what_was_printed_and_hands_back_the_rest(stuck, number, gateway_url, names):
    """What was seen does not come again; what was not seen comes at once, not when its lease ends."""
    stuck.send_signal(number)
    _, errors = stuck.communicate(timeout=30)

    assert (stuck.returncode, errors) == (130, b"")
    assert _rest(gateway_url, names[2]) == BODIES[1:]


def test_a_reader_that_goes_away_ends_it_the_same_way(stuck, gateway_url, names):
    """`mqgate sub | head` is how people look at a few messages."""
    stuck.stdout.close()
    _, errors = stuck.communicate(timeout=30)

    assert (stuck.returncode, errors) == (1, b"")
    assert _rest(gateway_url, names[2]) == BODIES[1:]
