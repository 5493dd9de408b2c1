"""LeaseStore on Redis: every method is one script, one round trip, judged by Redis' clock."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from mqgate.adapters.redis import answers
from mqgate.adapters.redis.scripts import script
from mqgate.adapters.redis.server import Server
from mqgate.core.entries import Group, Mode, OnPoison
from mqgate.core.errors import AttemptMismatch, Busy, MqgateError, TooManyClients
from mqgate.core.lease import (
    LONGEST_HOLD,
    MAX_SPAN,
    UNKNOWN,
    Acquire,
    Acquired,
    Boot,
    Client,
    Doomed,
    Head,
    Lease,
    Moved,
    Outcome,
    Placement,
    Position,
    Settled,
    Settlement,
)
from mqgate.core.message import instant, milliseconds

__all__ = ["RedisLeaseStore"]

_log = structlog.get_logger()
_MS = timedelta(milliseconds=1)
_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_LONGEST_HOLD = LONGEST_HOLD // _MS
_GONE = Settled(Outcome.GONE)
_SEEN_EVERY = 1.0
_REMEMBERED = 10_000
_RETURN_PAUSE = 0.2
_encode = msgspec.msgpack.Encoder().encode


class RedisLeaseStore:
    """`gateway` is told with wake-ups, so that we do not wake ourselves; `clock` stands in for Redis' in tests."""

    def __init__(
        self,
        server: Server,
        *,
        prefix: str = "mqgate",
        gateway: str = "",
        most_clients: int = 1_000,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._server = server
        self._prefix = prefix
        self._gateway = gateway
        self._most_clients = most_clients
        self._clock = clock
        self.channel = f"{prefix}:wake"
        self._groups: dict[str, tuple[Group, msgspec.Raw]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        # By which each scope was met last; forgetting one only lets a change go unnoticed.
        self._incarnations: dict[tuple[str, str], str] = {}
        self._returns: set[asyncio.Task[Any]] = set()

    async def open(self, group: Group, client: str, starts: Mapping[str, int], heads: Mapping[str, Head]) -> bool:
        made = await self._run(
            "open",
            group,
            client=client,
            incarnation=os.urandom(8).hex(),
            most_clients=self._most_clients,
            starts=[{"head": _head(queue, heads[queue]), "at": at} for queue, at in starts.items()],
        )
        self._incarnations.pop((group.name, client), None)
        if made < 0:
            raise TooManyClients(
                f"group {group.name} has {self._most_clients} clients: reuse a clientId, or wait until idle ones "
                "are forgotten",
                limit=self._most_clients,
            )
        return bool(made)

    async def acquire(self, request: Acquire) -> Acquired:
        group, scope = request.group, (request.group.name, request.client)
        fields = self._wish(request)

        def late(reply: Any) -> None:
            self._give_back(self._returned(group, request, fields["nonce"], reply))

        answer = answers.read(await self._run("acquire", group, late=late, **fields), answers.Acquired)
        if not answer.known or answer.strangers:
            # It was not written down who polled.
            self._seen.pop((group.name, request.polled_by), None)
        if not answer.known:
            self._incarnations.pop(scope, None)
            return UNKNOWN
        if answer.mismatch:
            raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)
        if "seen" in fields:
            self._remember_seen(group.name, request.polled_by)
        if len(self._incarnations) > _REMEMBERED:
            self._incarnations.clear()
        self._incarnations[scope] = answer.incarnation
        return answer.told(group.name)

    def _wish(self, request: Acquire) -> dict[str, Any]:
        """A receive as the scripts read it; most fields are there only if they say something."""
        group = request.group
        fields: dict[str, Any] = {
            "client": request.client,
            "most": request.most,
            "visibility": request.visibility // _MS,
            "polled_by": request.polled_by,
            "shape": f"{request.most}:{request.visibility // _MS}",
            "nonce": _DICE.getrandbits(48),
            "is_crowded": request.is_crowded,
        }
        if request.heads:
            fields["heads"] = [_head(queue, head, request.boots.get(queue)) for queue, head in request.heads.items()]
        if request.attempt is not None:
            fields["attempt"] = request.attempt
        if request.settlements:
            fields["settlements"] = _settlements(group, request.settlements)
        if request.closed:
            fields["closed"] = list(request.closed)
        if request.wait:
            fields["wait"] = request.wait // _MS
        if self._is_news(group.name, request.polled_by):
            fields["seen"] = {"name": request.polled_by, "address": request.address}
        known = self._incarnations.get((group.name, request.client))
        if known is not None:
            fields["incarnation"] = known
        return fields

    def _give_back(self, returning: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(returning)
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _returned(self, group: Group, request: Acquire, nonce: int, reply: Any) -> None:
        """Nobody waits for what a receive was given: it goes back. If the answer is lost, it is asked for first."""
        until = time.monotonic() + request.visibility.total_seconds()
        is_lost = reply is None
        while reply is None or isinstance(reply, bytes):
            try:
                if reply is None:
                    lost = {"client": request.client, "most": 0, "nonce": nonce, "is_repeat": True}
                    reply = await self._run("acquire", group, None, **lost)
                grants = answers.read(reply, answers.Acquired).told(group.name).grants
                # Served again since: its attempt was repeated, and somebody has it.
                lonely = [Placement(grant, grant.lease.start) for grant in grants if not is_lost or grant.serve == 1]
                if lonely:
                    await self.place(group, lonely)
            except MqgateError as error:
                if isinstance(error, Busy) and time.monotonic() < until:
                    await asyncio.sleep(_RETURN_PAUSE)
                    continue
                _log.warning("leases end by themselves", group=group.name, error=error.detail)
            return

    async def close(self) -> None:
        """Wait for nothing more to go back."""
        for task in list(self._returns):
            task.cancel()
            await asyncio.wait((task,))

    def _is_news(self, group: str, client: str) -> bool:
        """Who polled when is good to a second, so that a busy client costs one more write a second."""
        return time.monotonic() - self._seen.get((group, client), -_SEEN_EVERY) >= _SEEN_EVERY

    def _remember_seen(self, group: str, client: str) -> None:
        if len(self._seen) > _REMEMBERED:
            self._seen.clear()
        self._seen[group, client] = time.monotonic()

    async def place(self, group: Group, placements: Sequence[Placement]) -> Sequence[frozenset[int]]:
        reply = await self._run("place", group, placements=[_placement(each) for each in placements])
        if reply is None:
            return [frozenset() for _ in placements]
        if group.mode is Mode.MESSAGE:
            return [frozenset(stay) for stay in answers.read(reply, list[list[int]])]
        return [
            frozenset(range(each.grant.lease.start, each.after)) if stands else frozenset()
            for each, stands in zip(placements, answers.read(reply, list[bool]), strict=True)
        ]

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        reply = await self._run("settle", group, settlements=_settlements(group, settlements))
        if reply is None:
            return [_GONE for _ in settlements]
        return [answers.settled(each, group.name) for each in answers.read(reply, answers.Settlements)]

    async def bury(self, group: Group, doomed: Doomed) -> bool:
        return bool(await self._run("bury", group, lease=_lease(doomed.lease)))

    async def seek(
        self,
        group: Group,
        client: str,
        targets: Mapping[str, int],
        *,
        heads: Mapping[str, Head] = MappingProxyType({}),
        is_dry_run: bool,
    ) -> Sequence[Moved] | None:
        reply = await self._run(
            "seek",
            group,
            client=client,
            heads=[_head(queue, head) for queue, head in heads.items()],
            targets=[{"queue": queue, "to": to} for queue, to in targets.items()],
            is_dry_run=is_dry_run,
        )
        return None if reply is None else [each.told() for each in answers.read(reply, list[answers.Move])]

    async def positions(
        self, group: Group, client: str, heads: Mapping[str, Head]
    ) -> tuple[Sequence[Position], Sequence[Doomed]] | None:
        reply = await self._run(
            "positions", group, client=client, heads=[_head(queue, head) for queue, head in heads.items()]
        )
        return None if reply is None else answers.read(reply, answers.Positions).told(group.name)

    async def committed(self, group: str) -> Mapping[str, int] | None:
        reply = await self._evaluate("committed", group, {})
        return None if reply is None else dict(answers.read(reply, list[tuple[str, int]]))

    async def clients(self, group: str) -> Sequence[Client]:
        reply = await self._evaluate("clients", group, {"most": self._most_clients})
        return [each.told() for each in answers.read(reply, list[answers.Client])]

    async def forget(self, group: str) -> None:
        self._seen.clear()
        for scope in [each for each in self._incarnations if each[0] == group]:
            del self._incarnations[scope]
        await self._evaluate("forget", group, {})

    async def wake(self, group: str, after: timedelta = timedelta(0)) -> None:
        """Tell the other gateways that something is ready for a group, now or soon, that no script knows of."""
        at = 0 if not after else milliseconds(self.now() + after)
        told = _encode([self._gateway, group, "", at])
        await self._server.command("PUBLISH", self.channel, told)

    def now(self) -> datetime:
        """The clock that leases are judged by."""
        return self._server.now() if self._clock is None else instant(self._clock())

    async def _run(self, step: str, group: Group, late: Callable[[Any], None] | None = None, **fields: Any) -> Any:
        mode = "message" if group.mode is Mode.MESSAGE else "queue"
        return await self._evaluate(f"{mode}_{step}", group.name, {"group": self._group(group), **fields}, late)

    async def _evaluate(
        self, name: str, group: str, fields: dict[str, Any], late: Callable[[Any], None] | None = None
    ) -> Any:
        fields["seed"] = _DICE.getrandbits(31)
        fields["channel"] = self.channel
        fields["max_span"] = MAX_SPAN
        fields["longest_hold"] = _LONGEST_HOLD
        fields["gateway"] = self._gateway
        if self._clock is not None:
            fields["now"] = self._clock()

        def request(run: str, is_repeat: bool) -> bytes:
            fields["run"] = run
            if is_repeat:
                fields["is_repeat"] = True
            return _encode(fields)

        return await self._server.evaluate(script(name), f"{self._prefix}:{{{group}}}", request, late)

    def _group(self, group: Group) -> msgspec.Raw:
        """What the scripts need of a group, encoded once for each version of it."""
        known = self._groups.get(group.name)
        if known is None or known[0] is not group:
            known = self._groups[group.name] = group, msgspec.Raw(_encode(_rules(group)))
        return known[1]


def _rules(group: Group) -> dict[str, Any]:
    backoff = group.backoff
    rules: dict[str, Any] = {
        "name": group.name,
        "max_attempts": group.max_attempts,
        "dies": group.on_poison is OnPoison.DEAD,
        "client_ttl": group.client_ttl // _MS,
        "max_in_flight": group.max_in_flight,
        "is_ordered": group.is_ordered,
        "is_paused": group.is_paused,
        "backoff": {
            "initial": backoff.initial // _MS,
            "factor": backoff.factor,
            "most": backoff.most // _MS,
            "jitter": backoff.jitter,
        },
    }
    if backoff.steps:
        rules["backoff"] = {"steps": [step // _MS for step in backoff.steps]}
    if group.rate_limit is not None:
        rules["rate"] = {"rate": group.rate_limit.rate, "burst": group.rate_limit.burst}
    return rules


def _head(queue: str, head: Head, boot: Boot | None = None) -> dict[str, Any]:
    told = {"queue": queue, "min": head.min, "max": head.max}
    return told if boot is None else {**told, "boot": boot.at_ms, "floor": boot.floor}


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "client": lease.client,
        "queue": lease.queue,
        "start": lease.start,
        "next": lease.next,
        "epoch": lease.epoch,
        "incarnation": lease.incarnation,
    }


def _placement(placement: Placement) -> dict[str, Any]:
    fields = {"lease": _lease(placement.grant.lease), "serve": placement.grant.serve, "after": placement.after}
    if placement.kept is not None:
        fields["kept"] = [[offset, key or False] for offset, key in placement.kept.items()]
    return fields


def _settlements(group: Group, settlements: Sequence[Settlement]) -> list[dict[str, Any]]:
    """Message mode: neighbours of one grant that are settled alike are one entry with their offsets."""
    found: list[dict[str, Any]] = []
    last: tuple[Any, ...] | None = None
    offsets: list[int] = []
    for verb, lease, through, delay, reason, visibility, _ in settlements:
        alike = (verb, lease.epoch, lease.queue, lease.incarnation, delay, reason, visibility)
        if alike == last and group.mode is Mode.MESSAGE:
            offsets.append(lease.start)
            continue
        last, offsets = alike, [lease.start]
        fields: dict[str, Any] = {"verb": verb.value, "lease": _lease(lease), "offsets": offsets}
        fields["visibility"] = (visibility or group.visibility) // _MS
        if through is not None:
            fields["through"] = through
        if delay is not None:
            fields["delay"] = delay // _MS
        if reason:
            fields["reason"] = reason
        found.append(fields)
    return found
