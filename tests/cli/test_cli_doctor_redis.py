"""`mqgate doctor` against a real Redis."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from mqgate.cli.doctor_redis import check_memory
from mqgate.stack import Stack
from redis_server import operator, serving

Run = Callable[..., Result]


def _examined(run: Run, directory: Path, url: str) -> dict[str, tuple[str, str]]:
    config = directory / "gateway.toml"
    # Nobody is there to be asked about RocketMQ; Redis is looked at all the same.
    rocketmq = '[messages]\nengine = "rocketmq"\n[rocketmq]\nname_servers = ["127.0.0.1:1"]\n'
    config.write_text(f'{rocketmq}[leases]\nengine = "redis"\n[redis]\nurl = "{url}"\nprefix = "doctored"\n')
    result = run("--json", "doctor", "--config", str(config))
    checks = json.loads(result.stdout)["checks"]
    return {
        check["check"]: (check["status"], check["detail"]) for check in checks if check["check"].startswith("redis")
    }


def test_redis_is_checked_with_the_memory_of_its_groups(redis: Stack, run: Run, tmp_path: Path) -> None:
    """Operators need it before the first start, and when Redis runs out of memory."""
    with operator(redis.redis_url) as client:
        client.hset("doctored:{small}:state", "run", "x")
        client.hset("doctored:{large}:state", "run", "x" * 3_000_000)
        found = _examined(run, tmp_path, redis.redis_url)
        client.delete("doctored:{small}:state", "doctored:{large}:state")

    assert {name: status for name, (status, _) in found.items()} == {
        "redis: reachable": "ok",
        "redis: memory": "ok",
        "redis: wake-ups": "ok",
        "redis: groups": "ok",
    }
    size, largest = found["redis: groups"][1].split(", the largest: ")
    assert size.startswith("2 use ")
    assert largest.startswith("large ")
    assert largest.endswith("small 0.0 MiB")


def test_missing_permissions_are_reported(run: Run, tmp_path: Path) -> None:
    """Gateways start without them, and lost notifications show only as slow receives."""
    with serving(tmp_path / "redis") as port, operator(f"redis://127.0.0.1:{port}") as client:
        rules = ("on", ">secret", "~*", "resetchannels", "+@all", "-memory", "-subscribe")
        client.execute_command("ACL", "SETUSER", "poor", *rules)
        client.hset("doctored:{workers}:state", "run", "x")
        found = _examined(run, tmp_path, f"redis://poor:secret@127.0.0.1:{port}")

    assert {name: status for name, (status, _) in found.items()} == {
        "redis: reachable": "ok",
        "redis: memory": "ok",
        "redis: wake-ups": "fail",
        "redis: groups": "warn",
    }
    assert "SUBSCRIBE doctored:wake" in found["redis: wake-ups"][1]


def test_an_unreachable_redis_is_a_failed_check(run: Run, tmp_path: Path) -> None:
    """No further check makes sense."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{free.getsockname()[1]}"

        found = _examined(run, tmp_path, url)

    assert {name: status for name, (status, _) in found.items()} == {"redis: reachable": "fail"}


def test_a_nearly_full_redis_is_a_warning() -> None:
    """Groups cannot receive when Redis is full."""
    checks = [check_memory({"used_memory": used, "maxmemory": most}) for used, most in (("79", "100"), ("81", "100"))]

    assert [check.status for check in checks] == ["ok", "warn"]
    assert check_memory({"used_memory": "1", "maxmemory": "0"}).status == "ok"
