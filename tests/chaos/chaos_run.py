"""Three gateways, two brokers, one Redis, one PostgreSQL under load, and one after the other is killed.

    python tests/chaos/chaos_run.py MINUTES SEED [REPORT]

Prints the report, and writes it to REPORT if given; the exit code is 1 if a promise was broken. The history and the
gateways' logs stay in a directory that is named at the end, unless all went well.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop
from balancer import Balancer
from chaos_load import Load, LoadPlan
from chaos_report import Run, written
from checker import FAILURES, Findings, check
from history import Group, History, read
from nemesis import Nemesis, schedule
from plain_http import Cut, Http
from recovery import times_to_recover
from site_under_test import BROKERS, GATEWAYS, Site

__all__ = ["Outcome", "chaos"]

VISIBILITY = 4.0
GROUPS = [
    Group("chaos-queue", "queue", VISIBILITY),
    Group("chaos-message", "message", VISIBILITY),
    Group("chaos-ordered", "message", VISIBILITY, is_ordered=True),
]
_PATIENCE = 10.0
_DRAINED = 180.0
_LOOKS = 3


class Outcome(NamedTuple):
    findings: Findings
    recovery: dict[str, list[float]]
    ends: list[int]
    report: str

    @property
    def is_good(self) -> bool:
        return not any(self.findings.failures[kind] for kind in FAILURES) and not self.ends


def chaos(*, seconds: float, seed: int, plan: LoadPlan) -> Outcome:
    """Start the site, inject faults, drain the groups and check the history. Raise TimeoutError if draining fails."""
    directory = Path(tempfile.mkdtemp(prefix="mqgate-chaos-"))
    # PostgreSQL may run as another user.
    directory.chmod(0o711)
    print(f"history and logs are in {directory} until all went well", file=sys.stderr)  # noqa: T201 - of a program
    site = Site(directory)
    history = History(directory / "history.jsonl")
    try:
        site.open()
        load, drained = uvloop.run(_driven(site, history, seconds=seconds, seed=seed, plan=plan))
    finally:
        site.close()
        history.close()
    events = list(read(history.path))
    findings, recovery = check(events), dict(times_to_recover(events))
    ends = [code for gateway in site.gateways for code in gateway.ends]
    run = Run(seed, seconds, drained, load.counts.hung_up, ends)
    outcome = Outcome(findings, recovery, ends, written(run, findings, recovery, events))
    if outcome.is_good and "CHAOS_KEEP" not in os.environ:
        shutil.rmtree(directory)
    return outcome


async def _driven(site: Site, history: History, *, seconds: float, seed: int, plan: LoadPlan) -> tuple[Load, float]:
    balancer = Balancer([gateway.port for gateway in site.gateways])
    http = Http(await balancer.start(), patience=_PATIENCE)
    await _register(http, history, plan)
    load = Load(http, history, plan, GROUPS, seed)
    try:
        async with asyncio.TaskGroup() as clients:
            producers = [clients.create_task(producer) for producer in load.producers()]
            for consumer in load.consumers():
                clients.create_task(consumer)
            await Nemesis(site, history, seconds).run(schedule(seed, seconds, GATEWAYS, BROKERS))
            load.is_publishing = False
            began = time.monotonic()
            # The last of them may be waiting for what was just killed: nothing is drained before it is stored.
            await asyncio.wait(producers)
            await _drain(http)
            load.is_over = True
    finally:
        await balancer.stop()
    return load, time.monotonic() - began


async def _register(http: Http, history: History, plan: LoadPlan) -> None:
    await _until_put(http, f"topics/{plan.topic}", queues=8)
    for group in GROUPS:
        settings = {"mode": group.mode, "visibility": group.visibility, "maxAttempts": 1000, "backoff": ["0s"]}
        ordered = {"ordered": True} if group.is_ordered else {}
        await _until_put(http, f"groups/{group.name}", topic=plan.topic, **settings, **ordered)
        history.add(group)


async def _until_put(http: Http, path: str, **body: object) -> None:
    """Register an entry, and retry while gateways start."""
    deadline = time.monotonic() + 60
    while True:
        try:
            response = await http.call("PUT", f"/v1/{path}", body)
            if response.status in {200, 201}:
                return
            reason = str(response)
        except Cut as cut:
            reason = str(cut)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} could not be registered: {reason}")
        await asyncio.sleep(0.2)


async def _drain(http: Http) -> None:
    """Wait until the lag is 0 several times, because queue bounds may be slightly outdated."""
    looks = 0
    async with asyncio.timeout(_DRAINED):
        while looks < _LOOKS:
            looks = looks + 1 if await _is_drained(http) else 0
            await asyncio.sleep(1)


async def _is_drained(http: Http) -> bool:
    try:
        responses = [await http.call("GET", f"/v1/groups/{group.name}/lag") for group in GROUPS]
    except Cut:
        return False
    return all(response.status == 200 and response.body["lag"] == 0 for response in responses)


def main() -> int:
    minutes, seed, *report = sys.argv[1:]
    outcome = chaos(seconds=60 * float(minutes), seed=int(seed), plan=LoadPlan(rate=2_000.0))
    print(outcome.report)  # noqa: T201 - the program's answer
    for kind in FAILURES:
        for example in outcome.findings.examples[kind]:
            print(f"{kind}: {example}")  # noqa: T201 - same
    if report:
        Path(report[0]).write_text(outcome.report, "utf-8")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
