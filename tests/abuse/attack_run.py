"""One run of the suite: attacks a gateway, and measures what a client with a key notices."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from attacker import Attacker
from attacks import Attack
from site_under_attack import Footprint, Site

from mqgate.settings import HttpSettings

__all__ = ["LONG", "SHORT", "AbuseRun", "Plan", "Result"]

KIB, MIB = 1 << 10, 1 << 20
# Memory that one connection takes besides what counts against max_unread_bytes: 16 KiB of a response, 16 KiB of a
# head, and 8 KiB of objects.
_PER_CONNECTION = 40 * KIB
# Large bodies that the client with a key publishes, what arrives between two checks of the limits, and memory that the
# allocator has not returned.
_SLACK = 64 * MIB
# The p99 of a client with a key may be at most this many times its quiet value.
_MAX_SLOWDOWN = 5.0
# Each round compares a quiet phase with an attacked one. A slow machine delays some rounds, an attack that works delays
# all of them: so the medians of the rounds are compared, and more rounds are run before an attack is said to work.
_MAX_ROUNDS = 12
# The gateway loads its event encoder, 50 MB, with the first events that it writes, after a second. Its SQLite cache
# is full after 100 MB.
_WARM_UP = 2.0
_LARGE_WARM_UPS = 50


@dataclass(frozen=True, kw_only=True)
class Plan:
    connections: int
    drips_per_second: int
    rounds: int
    samples: int
    flood_seconds: float
    patience: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def http(self) -> HttpSettings:
        return HttpSettings(**self.settings)


SHORT = Plan(
    connections=700,
    drips_per_second=200,
    rounds=3,
    samples=200,
    flood_seconds=0.5,
    patience=60.0,
    settings={
        "max_connections": 1_000,
        "max_connections_per_address": 800,
        "max_unread_bytes": 32 * MIB,
        "header_timeout": timedelta(seconds=2),
        "body_timeout": timedelta(seconds=1),
        "idle_timeout": timedelta(seconds=5),
        "stall_timeout": timedelta(seconds=1),
        "min_rate": MIB,
    },
)
LONG = Plan(connections=10_000, drips_per_second=1_000, rounds=4, samples=1_000, flood_seconds=6.0, patience=150.0)


@dataclass(kw_only=True)
class Result:
    attack: Attack
    connections: int
    quiet: list[float] = field(default_factory=list)
    attacked: list[float] = field(default_factory=list)
    requests: int = 0
    errors: list[str] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    after: Footprint | None = None

    @property
    def slowdown(self) -> float:
        return statistics.median(self.attacked) / statistics.median(self.quiet)

    @property
    def is_slow(self) -> bool:
        return bool(self.attacked) and self.slowdown > _MAX_SLOWDOWN


class AbuseRun:
    """One gateway, one attacker. The site is open."""

    def __init__(self, site: Site, plan: Plan) -> None:
        self._site = site
        self._plan = plan
        self._attacker = Attacker(site.port, site.key)
        self._baseline: Footprint
        self._before: Mapping[str, int] = {}

    async def start(self) -> None:
        """Warm up, and note what the gateway holds without an attack."""
        began = time.monotonic()
        while time.monotonic() < began + _WARM_UP:
            await self._publish(self._plan.samples)
        for _ in range(_LARGE_WARM_UPS):
            await self._publish_large()
        self._baseline = await self._site.footprint()

    def close(self) -> None:
        self._attacker.close()

    @property
    def baseline(self) -> Footprint:
        return self._baseline

    @property
    def max_rss(self) -> int:
        """Return how many KiB the gateway may take at most."""
        http = self._plan.http
        connections = min(http.max_connections, 2 * self._plan.connections)
        return self._baseline.rss + (http.max_unread_bytes + connections * _PER_CONNECTION + _SLACK) // KIB

    @property
    def max_rss_after(self) -> int:
        """Return how many KiB it may take afterwards: the allocator keeps some of what was freed."""
        return self._baseline.rss + (self.max_rss - self._baseline.rss) // 2

    async def run(self, attack: Attack) -> Result:
        """Run an attack in rounds, and wait until everything that it held is released."""
        result = Result(attack=attack, connections=round(attack.share * self._plan.connections))
        self._before = before = await self._site.closed_connections()
        try:
            if attack.is_flood:
                await self._attack(result, lambda: self._endure(result))
            else:
                await self._compare(result)
            await self._publish_large()
        except (OSError, EOFError, RuntimeError, TimeoutError) as error:
            result.errors.append(repr(error))
        after = await self._site.closed_connections()
        result.closed = {reason: count - before.get(reason, 0) for reason, count in after.items()}
        result.peak = (await self._site.footprint()).peak
        return result

    async def _compare(self, result: Result) -> None:
        while len(result.quiet) < self._plan.rounds or (result.is_slow and len(result.quiet) < _MAX_ROUNDS):
            result.quiet.append(_p99(await self._publish(self._plan.samples)))
            is_last = len(result.quiet) == self._plan.rounds
            await self._attack(result, lambda is_last=is_last: self._sample(result, is_last=is_last))

    async def _attack(self, result: Result, act: Callable[[], Awaitable[None]]) -> None:
        plan = self._plan
        await asyncio.to_thread(self._attacker.start, result.attack, result.connections, plan.drips_per_second)
        try:
            if not result.attack.is_flood:
                await self._site.settled()
            await act()
        finally:
            await asyncio.to_thread(self._attacker.stop)
        result.after = await self._released()

    async def _sample(self, result: Result, *, is_last: bool) -> None:
        """Measure one attacked phase. The last one goes on until the defence was seen."""
        latencies = await self._publish(self._plan.samples)
        result.attacked.append(_p99(latencies))
        result.requests += len(latencies)
        deadline = time.monotonic() + self._plan.patience
        while is_last and not await self._is_defended(result.attack):
            result.requests += len(await self._publish(50))
            if time.monotonic() > deadline:
                raise TimeoutError(f"no connection was closed for {result.attack.closed_for}")

    async def _endure(self, result: Result) -> None:
        """Publish and check the health of the gateway during a flood."""
        began = time.monotonic()
        while time.monotonic() < began + self._plan.flood_seconds or not await self._is_defended(result.attack):
            result.requests += len(await self._publish(10))
            await self._site.check_health()
            if time.monotonic() > began + self._plan.patience:
                raise TimeoutError(f"no connection was closed for {result.attack.closed_for}")

    async def _is_defended(self, attack: Attack) -> bool:
        reason = attack.closed_for
        if reason is None:
            return True
        return (await self._site.closed_connections()).get(reason, 0) > self._before.get(reason, 0)

    async def _publish(self, count: int) -> list[float]:
        caller = await self._site.connect()
        try:
            return [await caller.publish() for _ in range(count)]
        finally:
            caller.close()

    async def _publish_large(self) -> None:
        """Publish a body that needs room among the bytes in flight."""
        caller = await self._site.connect()
        await caller.publish(b"x" * (2 * MIB))
        caller.close()

    async def _released(self) -> Footprint:
        """Wait until connections and files are at their baseline. TimeoutError if they do not get there."""
        async with asyncio.timeout(self._plan.patience):
            while True:
                now = await self._site.footprint()
                if now.connections <= self._baseline.connections and now.files <= self._baseline.files:
                    return now
                await asyncio.sleep(0.05)

    def broken_promises(self, result: Result) -> list[str]:
        """Return what went wrong, one sentence for each promise."""
        broken = list(result.errors)
        if result.is_slow:
            broken.append(f"the p99 of a publish is {result.slowdown:.1f} times its quiet value")
        if result.peak > self.max_rss:
            broken.append(f"the gateway took {result.peak} KiB, more than {self.max_rss}")
        if result.after is not None and result.after.rss > self.max_rss_after:
            broken.append(f"the gateway kept {result.after.rss} KiB, more than {self.max_rss_after}")
        return broken


def _p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]
