"""Sends fuzzed requests to a gateway, and judges what it made of them.

The longest turn of the gateway's event loop is read after each round. If it grew beyond the limit, the slowest requests
of the round are sent again, one at a time, to find the one that blocks.
"""

import asyncio
import contextlib
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fuzz_client import FuzzClient, NoResponse, Reply
from fuzz_requests import FuzzRequest, Generator
from surface import calls

from mqgate.http.errors import STATUS

__all__ = ["MAX_BLOCKED", "FuzzReport", "Target", "fuzz"]

# Seconds of CPU time that one turn of the loop may take.
MAX_BLOCKED = 0.1
_ROUND = 250
_CONNECTIONS = 8
_PATIENCE = 60.0
_SUSPECTS = 10
_CODES = {(status, error.code) for error, status in STATUS.items() if status in {503, 507}}
_BUG = b"a bug in mqgate"
_LARGEST_REFUSED = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A gateway with a registry, an admin key and a key for the admin calls of `/mq`."""

    url: str
    port: int
    pid: int
    credentials: dict[str, str]


@dataclass(slots=True, kw_only=True)
class FuzzReport:
    seed: int
    statuses: Counter[int] = field(default_factory=Counter)
    # What the gateway must not do, with the request.
    failures: list[str] = field(default_factory=list)
    blocked_before: float = 0.0
    blocked: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        count = sum(self.statuses.values())
        lines = [
            f"{count} requests with seed {self.seed} in {self.seconds:.0f} s, {count / self.seconds:.0f}/s",
            f"statuses: {dict(sorted(self.statuses.items()))} (0: refused by closing the connection)",
            f"longest turn: {self.blocked * 1000:.0f} ms of CPU time; {self.blocked_before * 1000:.0f} ms at the start",
        ]
        return "\n".join([*lines, *self.failures])


class _Run:
    def __init__(self, target: Target, generator: Generator, report: FuzzReport) -> None:
        self._target = target
        self._generator = generator
        self._report = report
        self._clients = [FuzzClient(target.port, _PATIENCE) for _ in range(_CONNECTIONS)]

    async def round(self, numbers: range) -> None:
        """Send the requests of these numbers over all connections, then check the loop."""
        todo = iter(numbers)
        sent: list[tuple[float, FuzzRequest]] = []

        async def work(client: FuzzClient) -> None:
            for number in todo:
                request = self._generator.request(number)
                began = time.perf_counter()
                await self._send(client, request)
                sent.append((time.perf_counter() - began, request))

        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(work(client))
        blocked = await self.blocked()
        if blocked > max(MAX_BLOCKED, self._report.blocked):
            # Requests that wait for a store are slow without blocking; large ones may block without being the slowest.
            slowest = sorted(sent, key=lambda pair: -pair[0])[:_SUSPECTS]
            largest = sorted(sent, key=lambda pair: -len(pair[1].body))[:_SUSPECTS]
            suspects = {request.number: request for _, request in (*largest, *slowest)}
            await self._find_blocking(blocked, list(suspects.values()))
            # Sent again, a request may have taken longer than at first.
            blocked = await self.blocked()
        self._report.blocked = max(blocked, self._report.blocked)

    async def _send(self, client: FuzzClient, request: FuzzRequest) -> None:
        try:
            reply = await client.exchange(request.method, request.wire())
        except NoResponse as error:
            self._report.statuses[0] += 1
            if len(request.body) <= _LARGEST_REFUSED:
                self._report.failures.append(f"no response ({error}): {request}")
            return
        self._report.statuses[reply.status] += 1
        if reply.status < 300:
            self._generator.learn(reply.body)
        if not _is_allowed(reply):
            self._report.failures.append(f"{reply.status} {reply.body[:300]!r}: {request}")

    async def _find_blocking(self, blocked: float, suspects: list[FuzzRequest]) -> None:
        """Send suspects again, alone, and report those that take the loop's CPU time."""
        found = []
        for request in suspects:
            before = _cpu(self._target.pid)
            with contextlib.suppress(NoResponse):
                await self._clients[0].exchange(request.method, request.wire())
            spent = _cpu(self._target.pid) - before
            if spent > MAX_BLOCKED / 2:
                found.append(f"  {spent * 1000:.0f} ms: {request}")
        shown = found or [f"  not when sent alone: {request}" for request in suspects[:5]]
        self._report.failures.append(
            "\n".join([f"the loop was blocked for {blocked * 1000:.0f} ms of CPU by one of", *shown])
        )

    async def blocked(self) -> float:
        """Return the longest turn of the gateway's loop, in seconds of CPU time."""
        text = (await self.metrics()).decode()
        found = re.findall(r"^mqgate_loop_blocked_cpu_seconds(?:\{.*\})? (\S+)", text, re.MULTILINE)
        return max(map(float, found))

    async def metrics(self) -> bytes:
        authorization = self._target.credentials["authorization"].encode()
        head = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: %b\r\n\r\n" % authorization
        return (await self._clients[0].exchange(b"GET", head)).body

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def _is_allowed(reply: Reply) -> bool:
    """Return whether a response is none of a fault, or one that the gateway documents."""
    if reply.status < 500:
        return _BUG not in reply.body[:500]
    code = re.search(rb'"code":"(\w+)"', reply.body)
    return code is not None and (reply.status, code[1].decode()) in _CODES


def _cpu(pid: int) -> float:
    """Return the CPU time of the thread that runs the loop: the first of the process."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9


async def fuzz(target: Target, count: int, seed: int) -> FuzzReport:
    """Send this many requests. The report lists every violation."""
    async with httpx.AsyncClient(base_url=target.url, headers=_authorization(target)) as api:
        document: dict[str, Any] = (await api.get("/openapi.json")).json()
    generator = Generator(calls(document), document["components"]["schemas"], seed, target.credentials)
    report = FuzzReport(seed=seed)
    run = _Run(target, generator, report)
    report.blocked_before = await run.blocked()
    began = time.perf_counter()
    for first in range(0, count, _ROUND):
        await run.round(range(first, min(first + _ROUND, count)))
    report.seconds = time.perf_counter() - began
    counts = re.findall(rb'mqgate_requests_total\{.*operation="(\w+)".*status="500".*\} (\d+)', await run.metrics())
    report.failures += [f"{name.decode()} failed {times.decode()} times with 500" for name, times in counts]
    await run.close()
    return report


def _authorization(target: Target) -> dict[str, str]:
    return {"authorization": target.credentials["authorization"]}
