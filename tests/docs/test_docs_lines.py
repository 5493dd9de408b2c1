"""The shell lines that a page shows do what the page says."""

import json
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, run

from mqgate.testing.server_process import ServerProcess

ADDRESS = "127.0.0.1:8080"


def _pasted(page: str, server: ServerProcess) -> str:
    """Return all shell blocks of a page in order, with the address of the test gateway."""
    return "\n".join(blocks(ROOT / page, "sh")).replace(ADDRESS, f"127.0.0.1:{server.port}")


def test_the_lines_of_the_readme_publish_receive_and_ack_in_every_mode(demo: ServerProcess, tmp_path: Path) -> None:
    """They are the first thing that a newcomer tries."""
    printed = run("sh", "-eu", script=_pasted("README.md", demo), directory=tmp_path)

    responses = [json.loads(line) for line in printed.splitlines()]
    received = [
        [message["body"] for message in response["messages"]] for response in responses if "messages" in response
    ]
    outcomes = [response["outcome"] for response in responses if "outcome" in response]
    assert received == [
        ["hello"],
        ["wake up"],
        ["later"],
        ["created", "paid"],
        [],
        [],
        ["to everybody"],
        ["to everybody"],
    ]
    assert outcomes == ["applied"] * 4
    assert [response["acked"] for response in responses if response.get("acked")] == [[{"outcome": "applied"}]]


def test_the_lines_about_delay_schedule_reschedule_and_cancel(demo: ServerProcess, tmp_path: Path) -> None:
    """If the documented cancel does not work, a customer gets the message."""
    printed = run("sh", "-eu", script=_pasted("docs/how-to/delay-and-cancel.md", demo), directory=tmp_path)

    responses = [json.loads(line) for line in printed.splitlines() if line]
    listed = next(response["items"] for response in responses if "items" in response)
    assert len(listed) == 2
    assert [response["outcome"] for response in responses if "outcome" in response] == ["cancelled", "cancelled"]
    assert [response["deliverAt"] for response in responses if response.get("state") == "scheduled"][:2] == [
        "2028-01-01T00:00:00.000Z",
        "2028-01-01T08:00:00.000Z",
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/delay-and-cancel.md"])
def test_pasted_lines_need_nothing_but_a_shell_and_curl(page: str) -> None:
    """The machine of the reader may have nothing else."""
    lines = "\n".join(blocks(ROOT / page, "sh"))

    assert "curl" in lines
    assert not {word for word in ("jq", "python", "bash", "node") if word in lines}
