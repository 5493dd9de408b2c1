"""A schedule of faults that is determined by a seed."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from history import Fault, History
from site_under_test import Site

__all__ = ["KINDS", "Nemesis", "Planned", "schedule"]

# What comes in turns, each in a new order; gateways are killed all the time.
KINDS = ("redis flushed", "redis killed", "broker killed", "gateway paused", "postgres restarted")
_PAUSE = 3.0


class Planned(NamedTuple):
    """Seconds after the start of the run."""

    at: float
    kind: str
    target: str


def schedule(seed: int, seconds: float, gateways: int, brokers: tuple[str, ...]) -> list[list[Planned]]:
    """Return two tracks: gateways killed every few seconds, and all other faults. The same seed gives the same plan."""
    rng = random.Random(f"{seed} kills")
    kills = [Planned(at, "gateway killed", str(rng.randrange(gateways))) for at in _instants(rng, 4, 8, seconds)]
    rng = random.Random(f"{seed} others")
    kinds = itertools.chain.from_iterable(rng.sample(KINDS, len(KINDS)) for _ in itertools.count())
    targets = {"broker killed": list(brokers), "gateway paused": [str(number) for number in range(gateways)]}
    others = [
        Planned(at, kind, rng.choice(targets.get(kind, [kind.split()[0]])))
        for at, kind in zip(_instants(rng, 12, 18, seconds), kinds, strict=False)
    ]
    return [kills, others]


def _instants(rng: random.Random, least: float, most: float, end: float) -> Iterator[float]:
    at = 0.0
    while (at := at + rng.uniform(least, most)) < end:
        yield at


class Nemesis:
    """Injects the planned faults of each track in order, at their time or after the previous fault."""

    def __init__(self, site: Site, history: History, seconds: float) -> None:
        self._site = site
        self._history = history
        self._seconds = seconds

    async def run(self, tracks: list[list[Planned]]) -> None:
        """Run until the time and the last fault are over."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for track in tracks:
                group.create_task(self._follow(track, began))
            await asyncio.sleep(self._seconds)

    async def _follow(self, track: list[Planned], began: float) -> None:
        for planned in track:
            await asyncio.sleep(max(began + planned.at - time.monotonic(), 0))
            if time.monotonic() > began + self._seconds:
                return
            self._history.add(await asyncio.to_thread(self._inflict, planned))

    def _inflict(self, planned: Planned) -> Fault:
        kind, target = planned.kind, planned.target
        stack = self._site.stack
        began = time.time()
        if kind == "gateway killed":
            began = self._site.kill_gateway(int(target))
        elif kind == "gateway paused":
            began = self._site.pause_gateway(int(target), _PAUSE)
        elif kind == "redis flushed":
            self._site.flush_redis()
        elif kind == "redis killed":
            self._site.kill_redis()
        else:
            (stack.stop if kind == "postgres restarted" else stack.kill)(target)
            stack.start(target)
        return Fault(kind, target, began, time.time())
