"""LeaseStore on Redis: every method is one script and one round trip, and uses the clock of Redis."""

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

from mqgate.adapters.redis import replies
from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.empty_steps import EmptySteps, may_free
from mqgate.adapters.redis.keys import group_keys, wake_up_channel
from mqgate.adapters.redis.scripts import script
from mqgate.core.acked_range import AckedRange
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
    Lease,
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
_RANDOM = random.Random()  # noqa: S311 - jitter, not secrets
_RULES = struct.Struct("<14d")
_CLOCK_AND_DRAW = struct.Struct("<2d")
_NO_RULES = bytes(_RULES.size), b""
_FAST_PATH = struct.Struct("<8d")
_GONE = SettlementResult(SettlementOutcome.GONE)
_SEEN_INTERVAL = 1.0
_MAX_CACHED = 10_000
_MISMATCH = 0
_RELEASE_PAUSE = 0.2
_encode = msgspec.msgpack.Encoder().encode
_NO_ARGUMENTS = (_encode(()),)


class RedisLeaseStore:
    """Lease store of one gateway. `gateway` marks its own wake-ups; `clock` replaces the Redis clock in tests."""

    def __init__(
        self,
        redis: RedisClient,
        *,
        prefix: str = "mqgate",
        gateway: str = "",
        max_clients: int = 1_000,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._gateway = gateway
        self._max_clients = max_clients
        self._clock = clock
        self.channel = wake_up_channel(prefix)
        # Encoded rules of each group, encoded once per version of the group.
        self._rules: dict[str, tuple[Group, tuple[bytes, bytes]]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        # Last known incarnation of each scope. If an entry is dropped, a new incarnation is not detected.
        self._incarnations: dict[tuple[str, str], str] = {}
        self._releases: set[asyncio.Task[Any]] = set()
        self._empty_steps = EmptySteps()

    async def create_state(
        self, group: Group, client: str, starts: Mapping[str, int], bounds: Mapping[str, QueueBounds]
    ) -> bool:
        queues = [(_queue_bounds(queue, bounds[queue]), start) for queue, start in starts.items()]
        created = await self._run("create_state", group, client, os.urandom(8).hex(), self._max_clients, queues)
        self._incarnations.pop((group.name, client), None)
        if created < 0:
            raise TooManyClients(
                f"group {group.name} has {self._max_clients} clients: reuse a clientId, or wait until idle clients "
                "expire",
                limit=self._max_clients,
            )
        return bool(created)

    async def acquire(self, request: AcquireRequest) -> AcquireResult:
        group, nonce = request.group, _RANDOM.getrandbits(48)
        incarnation = self._incarnations.get((group.name, request.client))
        is_seen_due = self._is_seen_due(group.name, request.polled_by)
        if request.bounds:
            self._empty_steps.forget(group.name)
        steps = self._empty_steps.of(group.name)
        if not is_seen_due and (known := steps.find(request)) is not None:
            return known

        def late(reply: Any) -> None:
            self._start_release(self._release(group, request, nonce, reply))

        arguments = None if is_seen_due else _fast_path_arguments(request, nonce, incarnation)
        arguments = arguments or (_encode(_arguments(request, nonce, incarnation, is_recorded=is_seen_due)),)
        sent_at = time.monotonic()
        try:
            reply = await self._run_encoded("acquire", group, arguments, late=late)
        except BaseException:
            self._empty_steps.forget(group.name)
            self._seen.pop((group.name, request.polled_by), None)
            raise
        if replies.is_fast_path(reply):
            acquired = replies.read_fast_path(reply, request)
        else:
            acquired = self._decoded(request, reply)
        if request.settlements and may_free(request, acquired):
            self._empty_steps.forget(group.name)
        # With another clock, the process cannot tell how old a step is.
        if not acquired.grants and self._clock is None:
            steps.add(request, acquired, sent_at, self.now())
        return acquired

    def _decoded(self, request: AcquireRequest, reply: Any) -> AcquireResult:
        """Return the result of the full script."""
        group, scope = request.group, (request.group.name, request.client)
        if reply == _MISMATCH:
            # A refused request records nothing, so the next one must record the client.
            self._seen.pop((group.name, request.polled_by), None)
            raise AttemptMismatch("use a new attemptId when max or visibility change", attemptId=request.attempt)
        decoded = None if reply is None else replies.decode(reply, replies.AcquireReply)
        if decoded is None or decoded.unknown_queues:
            # The caller creates the state or adds the queues, then repeats the request, which records the client.
            self._seen.pop((group.name, request.polled_by), None)
        if decoded is None:
            self._incarnations.pop(scope, None)
            return UNKNOWN
        if len(self._incarnations) > _MAX_CACHED:
            self._incarnations.clear()
        self._incarnations[scope] = decoded.incarnation
        return decoded.to_domain(group.name, request.client, len(request.settlements))

    def _start_release(self, release: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(release)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, group: Group, request: AcquireRequest, nonce: int, reply: Any) -> None:
        """Release the leases of a receive whose caller has given up. If the reply is lost, read the leases first."""
        until = time.monotonic() + request.visibility.total_seconds()
        is_lost = reply is None
        while reply is None or isinstance(reply, bytes):
            try:
                if reply is None:
                    arguments = (_encode((request.client, 0, 0, "", nonce, *[False] * 8, "")),)
                    reply = await self._run_encoded("acquire", group, arguments, is_repeat=True)
                    if reply is None:
                        return
                if replies.is_fast_path(reply):
                    grants = replies.read_fast_path(reply, request).grants
                else:
                    decoded = replies.decode(reply, replies.AcquireReply)
                    grants = decoded.to_domain(group.name, request.client, 0).grants
                # A grant that was served again belongs to a repeated attempt, which has received it.
                unreceived = [
                    PullReport(grant, grant.lease.start) for grant in grants if not is_lost or grant.serve == 1
                ]
                if unreceived:
                    await self.report_pull(group, unreceived)
            except MqgateError as error:
                if isinstance(error, Busy) and time.monotonic() < until:
                    await asyncio.sleep(_RELEASE_PAUSE)
                    continue
                _log.warning("lease release failed; leases left to expire", group=group.name, error=error.detail)
            return

    async def close(self) -> None:
        """Cancel pending releases; their leases expire."""
        for task in list(self._releases):
            task.cancel()
            await asyncio.wait((task,))

    def _is_seen_due(self, group: str, client: str) -> bool:
        """Return whether this request must record the poll. That is so at most once a second per client."""
        now = time.monotonic()
        if now - self._seen.get((group, client), -_SEEN_INTERVAL) < _SEEN_INTERVAL:
            return False
        if len(self._seen) > _MAX_CACHED:
            self._seen.clear()
        self._seen[group, client] = now
        return True

    async def report_pull(self, group: Group, reports: Sequence[PullReport]) -> Sequence[frozenset[int]]:
        reply = await self._run("report_pull", group, [_pull_report(report) for report in reports])
        if reply is None:
            return [frozenset() for _ in reports]
        if group.mode is Mode.MESSAGE:
            return [frozenset(offsets) for offsets in replies.decode(reply, list[list[int]])]
        return [
            frozenset(range(report.grant.lease.start, report.after)) if is_current else frozenset()
            for report, is_current in zip(reports, replies.decode(reply, list[bool]), strict=True)
        ]

    async def settle(self, group: Group, settlements: Sequence[Settlement]) -> Sequence[SettlementResult]:
        reply = await self._run("settle", group, _settlements(group, settlements))
        if reply is None:
            return [_GONE for _ in settlements]
        return replies.settlement_results(
            replies.decode(reply, replies.SettlementReplies), len(settlements), group.name
        )

    async def settle_dead(self, group: Group, exhausted: ExhaustedMessage, *, is_expired: bool = False) -> bool:
        return bool(await self._run("settle_dead", group, exhausted.lease[1:], is_expired))

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
            "seek", group, client, _all_bounds(bounds, last_append_ms=last_append_ms), list(targets.items()), is_dry_run
        )
        return (
            None
            if reply is None
            else [SeekResult(*result) for result in replies.decode(reply, list[tuple[str, int, int, int, int]])]
        )

    async def positions(
        self,
        group: Group,
        client: str,
        bounds: Mapping[str, QueueBounds],
        last_append_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Sequence[Position], Sequence[ExhaustedMessage]] | None:
        reply = await self._run("positions", group, client, _all_bounds(bounds, last_append_ms=last_append_ms))
        return None if reply is None else replies.decode(reply, replies.PositionsReply).to_domain(group.name)

    async def committed(self, group: str) -> Mapping[str, int] | None:
        reply = await self._evaluate("committed", group, _NO_RULES, _NO_ARGUMENTS)
        return None if reply is None else dict(replies.decode(reply, list[tuple[str, int]]))

    async def clients(self, group: str) -> Sequence[ClientInfo]:
        reply = await self._evaluate("clients", group, _NO_RULES, (_encode((self._max_clients,)),))
        return [client.to_domain() for client in replies.decode(reply, list[replies.ClientReply])]

    async def forget(self, group: str) -> None:
        self._seen.clear()
        self._empty_steps.forget(group)
        for scope in [scope for scope in self._incarnations if scope[0] == group]:
            del self._incarnations[scope]
        await self._evaluate("forget", group, _NO_RULES, _NO_ARGUMENTS)

    async def tidy(self) -> None:
        """Do nothing: the scripts delete what is no longer needed."""

    async def wake(self, group: str) -> None:
        """Publish a wake-up for a group, for messages that became ready without a lease step."""
        await self._redis.command("PUBLISH", self.channel, _encode([self._gateway, group, "", 0]))

    def now(self) -> datetime:
        """Return the time of the clock that leases use."""
        return self._redis.now() if self._clock is None else instant(self._clock())

    async def _run(self, operation: str, group: Group, *arguments: Any) -> Any:
        self._empty_steps.forget(group.name)
        try:
            return await self._run_encoded(operation, group, (_encode(arguments),))
        finally:
            # Once more: the command may have been sent again, after other steps.
            self._empty_steps.forget(group.name)

    def _run_encoded(
        self, operation: str, group: Group, arguments: tuple[Any, ...], **options: Any
    ) -> Coroutine[Any, Any, Any]:
        mode = "message" if group.mode is Mode.MESSAGE else "queue"
        rules = self._rules.get(group.name)
        if rules is None or rules[0] is not group:
            rarely_used = _encode((self.channel, self._gateway, group.name, _steps(group) or False))
            rules = self._rules[group.name] = group, (_rules(group), rarely_used)
        return self._evaluate(f"{mode}_{operation}", group.name, rules[1], arguments, **options)

    def _evaluate(
        self,
        name: str,
        group: str,
        rules: tuple[bytes, bytes],
        arguments: tuple[Any, ...],
        *,
        late: Callable[[Any], None] | None = None,
        is_repeat: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Run a script with the arguments that request.lua lists, in its order."""
        clock_and_draw = _CLOCK_AND_DRAW.pack(0 if self._clock is None else self._clock(), _RANDOM.random())
        common = rules[0] + clock_and_draw, rules[1], *arguments

        def argv(run: str, is_resent: bool) -> tuple[Any, ...]:
            return run, "1" if is_repeat or is_resent else "", *common

        return self._redis.evaluate(script(name), group_keys(self._prefix, group), argv, late)


def _rules(group: Group) -> bytes:
    """Return the rules of a group, packed in the order of request.lua. A factor of 0 means a backoff with steps."""
    backoff, limit = group.backoff, group.rate_limit
    first, longest, factor, jitter = backoff.initial, backoff.max_delay, backoff.factor, backoff.jitter
    if backoff.steps:
        first, longest, factor, jitter = backoff.steps[0], backoff.steps[0], 0, 0
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
        longest // _MS,
        jitter,
    )


def _steps(group: Group) -> list[int]:
    return [step // _MS for step in group.backoff.steps]


def _arguments(request: AcquireRequest, nonce: int, incarnation: str | None, *, is_recorded: bool) -> tuple[Any, ...]:
    """Return the arguments of acquire in the order of queue_acquire.lua."""
    bounds = request.bounds and _all_bounds(request.bounds, request.boots, request.last_append_ms)
    return (
        request.client,
        request.max_count,
        request.visibility // _MS,
        request.polled_by,
        nonce,
        request.has_other_waiters,
        incarnation or False,
        (request.wait and request.wait // _MS) or False,
        False if request.attempt is None else request.attempt,
        (request.settlements and _settlements(request.group, request.settlements)) or False,
        bounds or False,
        list(request.closed) or False,
        is_recorded and request.address,
        request.fingerprint,
    )


def _fast_path_arguments(request: AcquireRequest, nonce: int, incarnation: str | None) -> tuple[Any, ...] | None:
    """Return the short form of queue_fast_path.lua if the receive acks exactly one batch, else None."""
    settlements = request.settlements
    if not settlements or request.client or request.attempt is not None or request.closed:
        return None
    if request.bounds and not request.are_bounds_optional:
        return None
    acked = _acked_range(request.group, settlements)
    if acked is None or acked.incarnation != incarnation:
        return None
    _, _, queue, start, after, epoch, _ = acked
    numbers = _FAST_PATH.pack(
        request.max_count,
        request.visibility // _MS,
        nonce,
        request.wait // _MS,
        start,
        after,
        epoch,
        request.has_other_waiters,
    )
    bounds = b""
    if request.bounds:
        bounds = _encode(_all_bounds(request.bounds, request.boots, request.last_append_ms))
    return numbers, request.polled_by, queue, incarnation, bounds


def _acked_range(group: Group, settlements: Sequence[Settlement]) -> Lease | None:
    """Return the lease whose messages up to `next` are acked in order by all settlements together, or None."""
    if isinstance(settlements, AckedRange):
        return settlements.lease
    _, first, through, *_ = settlements[0]
    if group.mode is not Mode.MESSAGE:
        is_ack = len(settlements) == 1 and settlements[0].verb is Verb.ACK
        return (first if through is None else first._replace(next=through + 1)) if is_ack else None
    _, _, queue, start, _, epoch, incarnation = first
    for offset, (verb, acked, *_) in enumerate(settlements, start):
        if verb is not Verb.ACK or acked[2:4] != (queue, offset) or acked[5:] != (epoch, incarnation):
            return None
    return first._replace(next=start + len(settlements))


def _all_bounds(
    bounds: Mapping[str, QueueBounds],
    boots: Mapping[str, BrokerBoot] = MappingProxyType({}),
    last_append_ms: Mapping[str, int] = MappingProxyType({}),
) -> list[tuple[Any, ...]]:
    return [
        _queue_bounds(queue, its_bounds, boots.get(queue), last_append_ms.get(queue))
        for queue, its_bounds in bounds.items()
    ]


def _queue_bounds(
    queue: str, bounds: QueueBounds, boot: BrokerBoot | None = None, last_append_ms: int | None = None
) -> tuple[Any, ...]:
    return (queue, *bounds, *(boot or (False, False)), last_append_ms or False)


def _pull_report(report: PullReport) -> tuple[Any, ...]:
    kept: Any = False
    if report.kept is not None:
        kept = [(offset, key or False) for offset, key in report.kept.items()]
    return report.grant.lease[1:], report.grant.serve, report.after, kept


def _settlements(group: Group, settlements: Sequence[Settlement]) -> list[tuple[Any, ...]]:
    """Return the settlements as script arguments. Message mode: equal ones of one grant become one entry."""
    encoded: list[tuple[Any, ...]] = []
    last: tuple[Any, ...] | None = None
    offsets: list[int] = []
    is_message = group.mode is Mode.MESSAGE
    for verb, lease, through, delay, reason, visibility, _ in settlements:
        _, _, queue, start, _, epoch, incarnation = lease
        common = (verb, epoch, queue, incarnation, delay, reason, visibility)
        if is_message and common == last:
            offsets.append(start)
            continue
        last, offsets = common, [start]
        encoded.append(
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
    return encoded
