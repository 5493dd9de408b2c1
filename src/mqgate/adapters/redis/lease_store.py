"""LeaseStore on Redis: every method is one script, one round trip, judged by Redis' clock."""

import asyncio
import os
import random
import struct
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
    MAX_HOLD,
    MAX_SPAN,
    UNKNOWN,
    AcquireRequest,
    AcquireResult,
    BrokerBoot,
    ClientInfo,
    ExhaustedMessage,
    Position,
    PullReport,
    QueueBounds,
    SeekResult,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
)
from mqgate.core.message import instant

__all__ = ["RedisLeaseStore"]

_log = structlog.get_logger()
_MS = timedelta(milliseconds=1)
_DICE = random.Random()  # noqa: S311 - jitter, not secrets
_RULES = struct.Struct("<14d")
_MOMENT = struct.Struct("<2d")
_NO_RULES = bytes(_RULES.size), b""
_USUAL = struct.Struct("<8d")
_GONE = SettlementResult(SettlementOutcome.GONE)
_SEEN_EVERY = 1.0
_REMEMBERED = 10_000
_MISMATCH = 0
_RETURN_PAUSE = 0.2
_encode = msgspec.msgpack.Encoder().encode
_NOTHING = (_encode(()),)


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
        # What scripts are told of a group, made once for each version of it.
        self._rules: dict[str, tuple[Group, tuple[bytes, bytes]]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        # By which each scope was met last; forgetting one only lets a change go unnoticed.
        self._incarnations: dict[tuple[str, str], str] = {}
        self._returns: set[asyncio.Task[Any]] = set()

    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        queues = [(_head(queue, bounds[queue]), at) for queue, at in starts.items()]
        made = await self._run("open", group, client, os.urandom(8).hex(), self._most_clients, queues)
        self._incarnations.pop((group.name, client), None)
        if made < 0:
            raise TooManyClients(
                f"group {group.name} has {self._most_clients} clients: reuse a clientId, or wait until idle ones "
                "are forgotten",
                limit=self._most_clients,
            )
        return bool(made)

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        group, scope = request.group, (request.group.name, request.client)
        nonce = _DICE.getrandbits(48)
        incarnation = self._incarnations.get(scope)
        is_news = self._is_news(group.name, request.polled_by)

        def late(reply: Any) -> None:
            self._give_back(self._returned(group, request, nonce, reply))

        asked = None if is_news else _usual(request, nonce, incarnation)
        if asked is None:
            asked = (
                _encode(
                    (
                        request.client,
                        request.max_count,
                        request.visibility // _MS,
                        request.polled_by,
                        nonce,
                        request.has_other_waiters,
                        incarnation or False,
                        (request.wait and request.wait // _MS) or False,
                        False if request.attempt is None else request.attempt,
                        (request.settlements and _settlements(group, request.settlements)) or False,
                        (request.bounds and _heads(request.bounds, request.boots, request.last_append_ms)) or False,
                        list(request.closed) or False,
                        is_news and request.address,
                        request.shape,
                    )
                ),
            )
        reply = await self._ask("acquire", group, asked, late=late)
        if answers.is_usual(reply):
            return answers.usual(reply, request)
        if reply == _MISMATCH:
            raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)
        answer = None if reply is None else answers.read(reply, answers.AcquireReply)
        if answer is None or answer.unknown_queues:
            # Who opens the state, or adds to it, asks again; and is noted then.
            self._seen.pop((group.name, request.polled_by), None)
        elif is_news:
            self._remember_seen(group.name, request.polled_by)
        if answer is None:
            self._incarnations.pop(scope, None)
            return UNKNOWN
        if len(self._incarnations) > _REMEMBERED:
            self._incarnations.clear()
        self._incarnations[scope] = answer.incarnation
        return answer.told(group.name, request.client, len(request.settlements))

    def _give_back(self, mark_serve_returned: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(mark_serve_returned)
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _returned(self, group: Group, request: AcquireRequest, nonce: int, reply: Any) -> None:
        """Nobody waits for what a receive was given: it goes back. If the answer is lost, it is asked for first."""
        until = time.monotonic() + request.visibility.total_seconds()
        is_lost = reply is None
        while reply is None or isinstance(reply, bytes):
            try:
                if reply is None:
                    asked = (_encode((request.client, 0, 0, "", nonce, *[False] * 8, "")),)
                    reply = await self._ask("acquire", group, asked, is_repeat=True)
                    if reply is None:
                        return
                if answers.is_usual(reply):
                    grants = answers.usual(reply, request).grants
                else:
                    grants = answers.read(reply, answers.AcquireReply).told(group.name, request.client, 0).grants
                # Served again since: its attempt was repeated, and somebody has it.
                lonely = [PullReport(grant, grant.lease.start) for grant in grants if not is_lost or grant.serve == 1]
                if lonely:
                    await self.report_pull(group, lonely)
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

    async def report_pull(self, group: Group, reports: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        reply = await self._run("place", group, [_placement(each) for each in reports])
        if reply is None:
            return [frozenset() for _ in reports]
        if group.mode is Mode.MESSAGE:
            return [frozenset(stay) for stay in answers.read(reply, list[list[int]])]
        return [
            frozenset(range(each.grant.lease.start, each.after)) if stands else frozenset()
            for each, stands in zip(reports, answers.read(reply, list[bool]), strict=True)
        ]

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        reply = await self._run("settle", group, _settlements(group, settlements))
        if reply is None:
            return [_GONE for _ in settlements]
        return answers.outcomes(answers.read(reply, answers.Settlements), len(settlements), group.name)

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        return bool(await self._run("bury", group, exhausted.lease[1:], is_expired))

    async def seek(
        self,
        group: Group,
        client: str,
        targets: Mapping[str, int],
        *,
        bounds: Mapping[str, QueueBounds] = MappingProxyType({}),
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
        is_dry_run: bool,
    ) -> Sequence[SeekResult] | None:
        reply = await self._run(
            "seek", group, client, _heads(bounds, last_append_ms=last_append_ms), list(targets.items()), is_dry_run
        )
        return (
            None
            if reply is None
            else [SeekResult(*each) for each in answers.read(reply, list[tuple[str, int, int, int, int]])]
        )

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        reply = await self._run("positions", group, client, _heads(bounds, last_append_ms=last_append_ms))
        return None if reply is None else answers.read(reply, answers.PositionsReply).told(group.name)

    async def committed(self, group: str) -> Mapping[str, int] | None:
        reply = await self._evaluate("committed", group, _NO_RULES, _NOTHING)
        return None if reply is None else dict(answers.read(reply, list[tuple[str, int]]))

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        reply = await self._evaluate("clients", group, _NO_RULES, (_encode((self._most_clients,)),))
        return [each.told() for each in answers.read(reply, list[answers.Client])]

    async def forget(self, group: str) -> None:
        self._seen.clear()
        for scope in [each for each in self._incarnations if each[0] == group]:
            del self._incarnations[scope]
        await self._evaluate("forget", group, _NO_RULES, _NOTHING)

    async def wake(self, group: str) -> None:
        """Tell the other gateways that something is ready for a group, without a step that would have told them."""
        told = _encode([self._gateway, group, "", 0])
        await self._server.command("PUBLISH", self.channel, told)

    def now(self) -> datetime:
        """The clock that leases are judged by."""
        return self._server.now() if self._clock is None else instant(self._clock())

    def _run(self, step: str, group: Group, *asked: Any) -> Coroutine[Any, Any, Any]:
        return self._ask(step, group, (_encode(asked),))

    def _ask(self, step: str, group: Group, asked: tuple[Any, ...], **options: Any) -> Coroutine[Any, Any, Any]:
        mode = "message" if group.mode is Mode.MESSAGE else "queue"
        rules = self._rules.get(group.name)
        if rules is None or rules[0] is not group:
            seldom = _encode((self.channel, self._gateway, group.name, _steps(group) or False))
            rules = self._rules[group.name] = group, (_rules(group), seldom)
        return self._evaluate(f"{mode}_{step}", group.name, rules[1], asked, **options)

    async def _evaluate(
        self,
        name: str,
        group: str,
        rules: tuple[bytes, bytes],
        asked: tuple[Any, ...],
        *,
        late: Callable[[Any], None] | None = None,
        is_repeat: bool = False,
    ) -> Any:
        """Run a script: what it is told is the order of request.lua."""
        moment = _MOMENT.pack(0 if self._clock is None else self._clock(), _DICE.random())
        told = rules[0] + moment, rules[1], *asked

        def request(run: str, is_sent_again: bool) -> tuple[Any, ...]:
            return run, "1" if is_repeat or is_sent_again else "", *told

        return await self._server.evaluate(script(name), f"{self._prefix}:{{{group}}}", request, late)


def _rules(group: Group) -> bytes:
    """What the scripts need to know of a group, in the order of request.lua; a factor of 0: the backoff has steps."""
    backoff, limit = group.backoff, group.rate_limit
    first, most, factor, jitter = backoff.initial, backoff.max_delay, backoff.factor, backoff.jitter
    if backoff.steps:
        first, most, factor, jitter = backoff.steps[0], backoff.steps[0], 0, 0
    return _RULES.pack(
        group.max_attempts,
        group.on_poison is OnPoison.DEAD,
        group.is_paused,
        0 if limit is None else limit.rate,
        0 if limit is None else limit.burst,
        group.client_ttl // _MS,
        group.max_in_flight,
        group.is_ordered,
        MAX_HOLD // _MS,
        MAX_SPAN,
        first // _MS,
        factor,
        most // _MS,
        jitter,
    )


def _steps(group: Group) -> list[int]:
    return [step // _MS for step in group.backoff.steps]


def _usual(request: AcquireRequest, nonce: int, incarnation: str | None) -> tuple[Any, ...] | None:
    """The receive in the short form of queue_usual.lua, if it is one of those: it acks one batch, and asks for more."""
    settlements = request.settlements
    if not settlements or request.client or request.attempt is not None or request.bounds or request.closed:
        return None
    _, lease, through, *_ = settlements[0]
    _, _, queue, start, after, epoch, _ = lease
    if request.group.mode is Mode.MESSAGE:
        after = start + len(settlements)
    elif through is not None:
        after = through + 1
    if request.group.mode is Mode.QUEUE and len(settlements) > 1:
        return None
    for offset, (verb, each, *_) in enumerate(settlements, start):
        if verb is not Verb.ACK or each[2:4] != (queue, offset) or each[5:] != (epoch, incarnation):
            return None
    numbers = _USUAL.pack(
        request.max_count,
        request.visibility // _MS,
        nonce,
        request.wait // _MS,
        start,
        after,
        epoch,
        request.has_other_waiters,
    )
    return numbers, request.polled_by, queue, incarnation


def _heads(
    bounds: Mapping[str, QueueBounds],
    boots: Mapping[str, BrokerBoot] = MappingProxyType({}),
    last_append_ms: Mapping[str, int] = MappingProxyType({}),
) -> list[tuple[Any, ...]]:
    return [_head(queue, head, boots.get(queue), last_append_ms.get(queue)) for queue, head in bounds.items()]


def _head(
    queue: str, head: QueueBounds, boot: BrokerBoot | None = None, last_append_ms: int | None = None
) -> tuple[Any, ...]:
    return (queue, *head, *(boot or (False, False)), last_append_ms or False)


def _placement(placement: PullReport) -> tuple[Any, ...]:
    kept: Any = False
    if placement.kept is not None:
        kept = [(offset, key or False) for offset, key in placement.kept.items()]
    return placement.grant.lease[1:], placement.grant.serve, placement.after, kept


def _settlements(group: Group, settlements: Sequence[Settlement]) -> list[tuple[Any, ...]]:
    """Message mode: neighbours of one grant that are settled alike are one entry with their offsets."""
    found: list[tuple[Any, ...]] = []
    last: tuple[Any, ...] | None = None
    offsets: list[int] = []
    is_message = group.mode is Mode.MESSAGE
    for verb, lease, through, delay, reason, visibility, _ in settlements:
        _, _, queue, start, _, epoch, incarnation = lease
        alike = (verb, epoch, queue, incarnation, delay, reason, visibility)
        if is_message and alike == last:
            offsets.append(start)
            continue
        last, offsets = alike, [start]
        found.append(
            (
                verb.value,
                *lease[1:],
                (visibility or group.visibility) // _MS,
                False if through is None else through,
                False if delay is None else delay // _MS,
                reason or False,
                offsets,
            )
        )
    return found
