"""Release 0.1.0 beside this checkout: its packages, and what a test stores with it before the upgrade."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

COMMIT = "7b02e00"
ROOT = Path(__file__).parents[2]
# No lease may expire during the upgrade, not even on a slow machine.
LONG = "1h"
# Seconds until a short lease, backoff or delay ends: while no gateway runs.
SHORT = 1
# Each group has its own topic of one queue, so that the order of the messages is known.
MODES = ("message", "queue", "broadcast")
CLIENT = "ada"
Json = dict[str, Any]


def check_out(directory: Path) -> str:
    """Write the packages of the release to the directory; return the path to import them from."""
    archive = subprocess.run(  # noqa: S603 - a fixed command
        ["git", "-C", str(ROOT), "archive", COMMIT, "src"],  # noqa: S607 - git of the machine
        check=False,
        capture_output=True,
    )
    if archive.returncode:
        reason = archive.stderr.decode(errors="replace").strip()
        pytest.fail(
            f"commit {COMMIT} (release 0.1.0) cannot be read: {reason}. "
            "A shallow clone lacks it; run git fetch --unshallow.",
            pytrace=False,
        )
    subprocess.run(["tar", "-x", "-C", str(directory)], check=True, input=archive.stdout)  # noqa: S603, S607 - same
    return str(directory / "src")


def default_settings(path: str) -> dict[str, Json]:
    """Return all settings of the release with their defaults, by section."""
    code = (
        "import dataclasses, json; from mqgate.settings import Settings;"
        "print(json.dumps({name: value for name, value in dataclasses.asdict(Settings()).items() if value}))"
    )
    printed = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], check=True, capture_output=True, env={"PYTHONPATH": path}
    )
    return dict(json.loads(printed.stdout))


class Caller:
    """Calls of /v1 with one API key. A response that is not expected fails the test."""

    def __init__(self, url: str, key: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=90)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        response = self.http.request(method, f"/v1/{path}", json=body)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return dict(response.json()) if response.content else {}

    def publish(self, topic: str, *bodies: str, **envelope: Any) -> list[Json]:
        items = [{"body": body, **envelope} for body in bodies]
        return list(self.call("POST", f"topics/{topic}/messages", {"messages": items})["results"])

    def receive(self, group: str, limit: int, mode: str = "message", **more: Any) -> Json:
        """Receive some messages; wait until there is at least one."""
        named = {"clientId": CLIENT} if mode == "broadcast" else {}
        return self.call("POST", f"groups/{group}/receive", {"max": limit, "wait": 60, **named, **more})

    def settle(self, verb: str, group: str, receipt: str, **more: Any) -> tuple[int, str]:
        """Return the status and the outcome."""
        response = self.http.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipt, **more})
        return response.status_code, str(response.json().get("outcome", response.text))

    def lag(self, group: str, mode: str) -> Json:
        """Return the counts; only the age of the oldest message changes with time."""
        lag = self.call("GET", f"groups/{group}/lag{f'?clientId={CLIENT}' if mode == 'broadcast' else ''}")
        del lag["oldestAge"]
        return lag


def receipts(received: Json) -> list[str]:
    """Return one receipt for the batch of a queue, or one for each message."""
    lease = received.get("lease")
    return [lease["receipt"]] if lease else [message["receipt"] for message in received["messages"]]


def bodies(received: Json) -> list[str]:
    return [message["body"] for message in received["messages"]]


@dataclass
class Stored:
    """What release 0.1.0 returned."""

    admin_key: str = ""
    group_key: str = ""
    acked: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    lags: dict[str, Json] = field(default_factory=dict)
    attempt: Json = field(default_factory=dict)
    nacked: Json = field(default_factory=dict)
    letters: list[Json] = field(default_factory=list)
    letter: Json = field(default_factory=dict)
    once: Json = field(default_factory=dict)
    scheduled: Json = field(default_factory=dict)
    overdue: Json = field(default_factory=dict)
    cancelled: Json = field(default_factory=dict)


def fill(url: str) -> Stored:
    """Store something of every kind with the running gateway."""
    stored = Stored()
    with Caller(url) as anonymous:
        stored.admin_key = anonymous.call("POST", "keys", {"role": "admin"})["key"]
    with Caller(url, stored.admin_key) as caller:
        for mode in MODES:
            _register(caller, mode, mode=mode, **({"start": "earliest"} if mode == "broadcast" else {}))
            _hold(caller, mode, stored)
        stored.group_key = caller.call("POST", "keys", {"group": "message"})["key"]
        _register(caller, "attempts")
        caller.publish("attempts", "a", "b")
        stored.attempt = caller.receive("attempts", 2, attemptId="first")
        _fail(caller, stored)
        _register(caller, "paused")
        caller.call("POST", "groups/paused/pause")
        _die(caller, stored)
        _register(caller, "once")
        (stored.once,) = caller.publish("once", "only", idempotencyKey="key")
        _schedule(caller, stored)
    return stored


def _register(caller: Caller, name: str, **settings: Any) -> None:
    caller.call("PUT", f"topics/{name}", {"queues": 1})
    caller.call("PUT", f"groups/{name}", {"topic": name, "visibility": LONG, **settings})


def _hold(caller: Caller, mode: str, stored: Stored) -> None:
    """Six messages: two are acked, two are held, two were never delivered."""
    caller.publish(mode, *"abcdef")
    first = caller.receive(mode, 2, mode)
    stored.acked[mode] = receipts(first)
    for receipt in stored.acked[mode]:
        assert caller.settle("ack", mode, receipt) == (200, "applied")
    second = caller.receive(mode, 2, mode)
    assert bodies(first) + bodies(second) == [*"abcd"]
    stored.held[mode] = receipts(second)
    stored.lags[mode] = caller.lag(mode, mode)


def _fail(caller: Caller, stored: Stored) -> None:
    """Nack one message, and leave the lease of another one to expire."""
    _register(caller, "nacked")
    caller.publish("nacked", "again")
    stored.nacked = caller.receive("nacked", 1)
    assert caller.settle("nack", "nacked", *receipts(stored.nacked), delay=f"{SHORT}s") == (200, "applied")
    _register(caller, "abandoned", visibility=f"{SHORT}s", backoff=["0s"])
    caller.publish("abandoned", "again")
    caller.receive("abandoned", 1)


def _die(caller: Caller, stored: Stored) -> None:
    _register(caller, "fragile", maxAttempts=1)
    caller.publish("fragile", "broken", key="k", tag="t", properties={"p": "q"})
    received = caller.receive("fragile", 1)
    assert caller.settle("nack", "fragile", *receipts(received), reason="bad") == (200, "applied")
    stored.letters = caller.call("GET", "groups/fragile/dead-letters")["items"]
    stored.letter = caller.call("GET", f"groups/fragile/dead-letters/{stored.letters[0]['id']}")


def _schedule(caller: Caller, stored: Stored) -> None:
    for topic in ("far", "overdue"):
        _register(caller, topic)
    far, cancelled = caller.publish("far", "later", "never", delay="1h")
    stored.cancelled = caller.call("DELETE", f"scheduled/{cancelled['id']}")
    stored.scheduled = caller.call("GET", f"scheduled/{far['id']}")
    (stored.overdue,) = caller.publish("overdue", "due", delay=f"{SHORT}s")
