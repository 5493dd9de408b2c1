"""Receive in queue and broadcast mode: one store step (ack, choose, lock), one pull.

known group or client?  no -> open its state at its start, say `registered` (broadcast), try again
a message is doomed     -> bury it first, then try again
granted                 -> pull; a short pull gives the rest back, an empty one the whole queue, uncounted
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from mqgate.consumption.rescue import Undertaker
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import Acquire, Acquired, Grant, Head, Placement, Settled, Settlement, State
from mqgate.core.message import Message
from mqgate.core.times import parse_instant
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import Heads, MessageLog
from mqgate.telemetry.metrics import Metrics

_log = structlog.get_logger()
_ROUNDS = 16
_SCOPES_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """What a client asks for."""

    group: Group
    client: str
    most: int
    visibility: timedelta
    attempt: str | None = None
    settlements: Sequence[Settlement] = ()
    address: str = ""
    most_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What it gets."""

    messages: Sequence[Message] = ()
    grant: Grant | None = None
    settled: Sequence[Settled] = ()
    state: State = State.OK
    is_registered: bool = False
    expired: int = 0
    rewound: int = 0


class QueueConsumer:
    def __init__(self, log: MessageLog, leases: LeaseStore, undertaker: Undertaker, metrics: Metrics) -> None:
        self._log = log
        self._leases = leases
        self._undertaker = undertaker
        self._metrics = metrics
        # Up to which version each scope's heads were told to the store; forgetting one only repeats them.
        self._told: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def receive(self, request: Receive) -> Received:
        group = request.group
        scope = (group.name, request.client if group.mode is Mode.BROADCAST else "")
        settlements, settled = request.settlements, list[Settled]()
        is_registered = False
        expired = rewound = 0
        for _ in range(_ROUNDS):
            heads = await self._log.heads(group.topic, self._told.get(scope, 0))
            acquired = await self._leases.acquire(self._step(request, scope[1], heads, settlements))
            if not acquired.is_known:
                is_registered |= await self.open(group, scope[1])
                self._told.pop(scope, None)
                continue
            self._remember(scope, heads.version)
            settled += acquired.settled
            settlements = ()
            expired += acquired.expired
            rewound += acquired.rewound
            self._report(acquired, group)
            for doomed in acquired.doomed:
                await self._undertaker.bury(group, doomed)
            granted = acquired.grants[0] if acquired.grants else None
            messages, grant = await self._pull(request, granted)
            if grant is None and (granted or acquired.doomed):
                continue
            break
        else:
            messages, grant, acquired = (), None, Acquired(is_known=True, state=State.BUSY)
        return Received(
            messages=messages,
            grant=grant,
            settled=settled,
            state=acquired.state,
            is_registered=is_registered and group.mode is Mode.BROADCAST,
            expired=expired,
            rewound=rewound,
        )

    async def open(self, group: Group, client: str) -> bool:
        """Make the state of a group or a broadcast client at the group's start; False if it is there."""
        heads = (await self._log.heads(group.topic)).queues
        return await self._leases.open(group, client, await self._starts(group, heads), heads)

    async def _starts(self, group: Group, heads: Mapping[str, Head]) -> Mapping[str, int]:
        if group.start == "earliest":
            return {queue: head.min for queue, head in heads.items()}
        if group.start == "latest":
            return {queue: head.max for queue, head in heads.items()}
        found = await self._log.offsets_at(group.topic, parse_instant(group.start, "start"))
        return {queue: max(head.min, min(found[queue], head.max)) for queue, head in heads.items()}

    @staticmethod
    def _step(request: Receive, client: str, heads: Heads, settlements: Sequence[Settlement]) -> Acquire:
        return Acquire(
            group=request.group,
            client=client,
            most=request.most,
            visibility=request.visibility,
            heads=heads.queues,
            polled_by=request.client or f"@{request.address}",
            address=request.address,
            attempt=request.attempt,
            settlements=settlements,
        )

    async def _pull(self, request: Receive, grant: Grant | None) -> tuple[Sequence[Message], Grant | None]:
        if grant is None:
            return (), None
        lease = grant.lease
        try:
            messages = await self._log.read(
                request.group.topic, lease.queue, lease.start, lease.next - lease.start, request.most_bytes
            )
        except BaseException:
            await self._leases.place(request.group, (Placement(grant, lease.start),))
            raise
        after = lease.start + len(messages)
        if after < lease.next:
            await self._leases.place(request.group, (Placement(grant, after),))
        if not messages:
            return (), None
        return messages, grant._replace(lease=lease._replace(next=after))

    def _remember(self, scope: tuple[str, str], version: int) -> None:
        self._told[scope] = max(version, self._told.get(scope, 0))
        self._told.move_to_end(scope)
        if len(self._told) > _SCOPES_REMEMBERED:
            self._told.popitem(last=False)

    def _report(self, acquired: Acquired, group: Group) -> None:
        if acquired.expired:
            self._metrics.expired.labels(group.name).inc(acquired.expired)
            _log.warning(
                "messages expired before they were consumed", group=group.name, count=acquired.expired
            )
        if acquired.rewound:
            _log.warning("a queue came back shorter", group=group.name, count=acquired.rewound)
