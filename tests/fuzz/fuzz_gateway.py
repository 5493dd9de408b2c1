"""A gateway in a process of its own, with everything registered that fuzzed requests name."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fuzz_run import Target

from mqgate.settings import Settings
from mqgate.stats.engine import open_stats
from mqgate.testing.server_process import ServerProcess

__all__ = ["fuzz_target"]

_CIPHER_KEY = "sixteen-byte-key"
_REGISTRY = {
    "topics/orders": {"queues": 2},
    "topics/other": {"queues": 1},
    "producers/shop": {"topic": "orders"},
    "groups/workers": {"topic": "orders", "mode": "queue"},
    "groups/all": {"topic": "orders", "mode": "broadcast"},
    "groups/singles": {"topic": "orders", "maxAttempts": 2},
    "groups/ordered": {"topic": "other", "ordered": True},
}


@contextmanager
def fuzz_target(settings: Settings, environment: dict[str, str]) -> Iterator[Target]:
    """Start a gateway with an admin key, so that fuzzed keys change nothing for the requests."""
    # Without the tables of the pipelines every call for statistics ends early.
    open_stats(settings, is_writing=True)
    server = ServerProcess(
        Path(settings.sqlite.directory),
        MQGATE_SQLITE_SYNCHRONOUS="normal",
        MQGATE_STATS_ENGINE=settings.stats.engine,
        MQGATE_MQ_ANONYMOUS_FROM="127.0.0.1/32",
        MQGATE_MQ_CIPHER_KEY=_CIPHER_KEY,
        **environment,
    ).start()
    try:
        with httpx.Client(base_url=f"{server.url}/v1/", timeout=60) as api:
            key = api.post("keys", json={"role": "admin"}).raise_for_status().json()
            credentials = {"authorization": f"Bearer {key['key']}", "key_id": key["id"], "mu": _mu("ann@example.com")}
            api.headers["authorization"] = credentials["authorization"]
            for path, body in _REGISTRY.items():
                api.put(path, json=body).raise_for_status()
            for number in range(20):
                api.post("topics/orders/messages", json={"body": f"{number}", "key": "k"}).raise_for_status()
        yield Target(url=server.url, port=server.port, pid=server.process.pid, credentials=credentials)
    finally:
        server.stop()


def _mu(user: str) -> str:
    """Return the header that opens the admin calls of `/mq`."""
    left = 16 - len(user) % 16
    encryptor = Cipher(algorithms.AES(_CIPHER_KEY.encode()), modes.ECB()).encryptor()  # noqa: S305 - the header's own
    return base64.b64encode(encryptor.update(user.encode() + bytes([left]) * left) + encryptor.finalize()).decode()
