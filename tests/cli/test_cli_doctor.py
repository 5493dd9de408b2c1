"""The checks of `mqgate doctor`."""

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest

from mqgate import __version__
from mqgate.cli.doctor import check_clock, check_keys, check_parts, check_version
from mqgate.client.errors import Reply

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
NOON_DATE = "Thu, 31 Jan 2030 12:00:00 GMT"
LOCAL = "http://127.0.0.1:8080"


def test_an_unreachable_gateway_is_a_failed_check(run):
    """This is the most frequent reason to run the command; the machine is described nevertheless."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    result = run("--url", url, "--json", "doctor")

    status = {check["check"]: check["status"] for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert (status["reachable"], status["python"]) == ("fail", "ok")


@pytest.mark.parametrize(("seconds", "status"), [(0, "ok"), (5, "ok"), (-5, "ok"), (6, "warn"), (-3600, "warn")])
def test_clocks_may_differ_by_a_few_seconds(seconds, status):
    """The Date header has a resolution of one second, so small differences are not significant."""
    assert check_clock(NOON_DATE, NOON + timedelta(seconds=seconds)).status == status


@pytest.mark.parametrize("date", [None, "yesterday", ""])
def test_a_missing_or_invalid_date_header_is_a_warning(date):
    """A proxy may remove the header, which is not a fault of the gateway."""
    assert check_clock(date, NOON).status == "warn"


def test_an_open_gateway_is_fine_on_loopback_and_a_warning_elsewhere():
    """Without keys, every client has full access."""
    near = check_keys(LOCAL, has_key=False, anonymous_status=200, own_status=200)
    far = check_keys("http://mq.example:8080", has_key=False, anonymous_status=200, own_status=200)

    assert (near.status, far.status) == ("ok", "warn")


@pytest.mark.parametrize(
    ("has_key", "own_status", "status"),
    [(False, 401, "fail"), (True, 401, "fail"), (True, 403, "ok"), (True, 200, "ok")],
)
def test_a_missing_or_refused_key_is_a_failed_check(has_key, own_status, status):
    """Without an accepted key, no other command works."""
    assert check_keys(LOCAL, has_key=has_key, anonymous_status=401, own_status=own_status).status == status


@pytest.mark.parametrize(("version", "status"), [(__version__, "ok"), ("9.9.9", "warn"), (None, "warn")])
def test_another_release_of_the_gateway_is_a_warning(version, status):
    """Different releases explain some failures."""
    assert check_version(version).status == status


def test_the_part_that_is_not_ready_is_named():
    """The name of the part shows operators where to look."""
    ready = Reply(
        url="http://gw/readyz",
        status=503,
        headers={},
        content=b'{"status": "unready", "parts": {"store": "storage_full", "server": "ok"}}',
    )

    checks = {check.check: (check.status, check.detail) for check in check_parts(ready)}

    assert checks["ready"][0] == "fail"
    assert checks["ready: store"] == ("fail", "storage_full")
    assert checks["ready: server"] == ("ok", "ok")
