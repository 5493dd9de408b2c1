"""A Redis (Valkey) with its own options for one test: TLS, users, little memory, a cluster node, a replica."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL

import redis

from mqgate.stack.free_ports import free_port
from mqgate.stack.process import end, launch
from mqgate.stack.redis_part import _find_server


@contextmanager
def serving(home: Path, *options: str, is_ready: bool = True) -> Iterator[int]:
    """Start a server with these options and yield its port. Without `is_ready`, do not wait until it responds."""
    home.mkdir(parents=True, exist_ok=True)
    # A cluster's node takes the port that lies 10,000 above as well.
    port = free_port((10_000,))
    command = [_find_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    command += ["--set-proc-title", "no", *options]
    pid = launch(command, log=home / "out.log")
    try:
        deadline = time.monotonic() + 30
        while is_ready and "Ready to accept" not in (home / "out.log").read_text("utf-8"):
            assert time.monotonic() < deadline, (home / "out.log").read_text("utf-8")
            time.sleep(0.01)
        yield port
    finally:
        end(pid, command, SIGKILL, patience=10.0)


@contextmanager
def operator(url: str) -> Iterator["redis.Redis"]:
    """Yield a plain client, as an operator would use."""
    client = redis.Redis.from_url(url)
    try:
        yield client
    finally:
        with suppress(redis.RedisError):
            client.close()


async def is_up(node: "redis.Redis") -> bool:
    """Return whether the cluster serves all slots, as seen by this node."""
    return b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO")
