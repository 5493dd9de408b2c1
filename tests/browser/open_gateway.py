"""A gateway without keys on loopback, and all of its state that a foreign page would like to change."""

import re
from pathlib import Path
from typing import Any

import httpx

from mqgate.testing.server_process import ServerProcess

__all__ = ["OpenGateway"]

_STATE = (
    "topics",
    "topics/orders/queues",
    "groups",
    "groups/workers/clients",
    "groups/locked/clients",
    "groups/workers/dead-letters",
    "scheduled",
    "keys",
    "audit",
)


class OpenGateway:
    """A topic with messages, a group of each kind, and one dead letter."""

    def __init__(self, directory: Path) -> None:
        self._server = ServerProcess(directory, MQGATE_SQLITE_SYNCHRONOUS="normal").start()
        self.port = self._server.port
        self.url = self._server.url
        self._api = httpx.Client(base_url=f"{self.url}/v1/", timeout=60)
        self._put("topics/orders", queues=1)
        self._put("producers/shop", topic="orders")
        self._put("groups/workers", topic="orders", maxAttempts=1)
        self._put("groups/locked", topic="orders", mode="queue")
        for number in range(3):
            self._post("topics/orders/messages", body=f"secret {number}")
        received = self._post("groups/workers/receive", max=1)
        self._post("groups/workers/nack", receipt=received["messages"][0]["receipt"])

    def _put(self, path: str, **body: Any) -> None:
        self._api.put(path, json=body).raise_for_status()

    def _post(self, path: str, **body: Any) -> Any:
        return self._api.post(path, json=body).raise_for_status().json()

    def state(self) -> dict[str, Any]:
        """Return the offsets, positions, leases, dead letters and keys."""
        found = {path: self._api.get(path).json() for path in _STATE}
        for group in ("workers", "locked"):
            lag = self._api.get(f"groups/{group}/lag").json()
            # The age of the oldest message changes by itself.
            found[group] = lag.get("queues", lag)
        return found

    def refused(self) -> int:
        """Return how many requests the gateway refused because of their origin or host."""
        counts = re.findall(r'mqgate_requests_total\{.*status="403"\} (\d+)', httpx.get(f"{self.url}/metrics").text)
        return sum(map(int, counts))

    def stop(self) -> None:
        self._api.close()
        self._server.stop()
