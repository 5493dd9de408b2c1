"""Steps of a consumer on a lease store, for contracts and scenarios."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from mqgate.core.entries import Group
from mqgate.core.lease import (
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    Lease,
    Position,
    PullReport,
    QueueBounds,
    Settlement,
    SettlementOutcome,
    SettlementResult,
    Verb,
    attempt_fingerprint,
)
from mqgate.ports.lease_store import LeaseStore

# After this time every store accepts a lower max offset of a queue.
BOUNDS_TRUSTED = timedelta(seconds=6)
QUEUE = "local:0"
OTHER = "local:1"


async def opened(
    store: LeaseStore,
    group: Group,
    bounds: Mapping[str, QueueBounds],
    *,
    client: str = "",
    starts: Mapping[str, int] | None = None,
) -> bool:
    """Create the state of a group or client, by default at the first offsets of the queues."""
    return await store.create_state(
        group, client, starts or {queue: queue_bounds.min for queue, queue_bounds in bounds.items()}, bounds
    )


async def ask(
    store: LeaseStore,
    group: Group,
    *,
    bounds: Mapping[str, QueueBounds] | None = None,
    client: str = "",
    max_count: int = 32,
    visibility: timedelta | None = None,
    polled_by: str = "consumer",
    attempt: str | None = None,
    carrying: Sequence[Settlement] = (),
    has_other_waiters: bool = False,
    closed: Sequence[str] = (),
    last_append_ms: Mapping[str, int] | None = None,
) -> AcquireResult:
    """Receive once and return the result."""
    return await store.acquire(
        AcquireRequest(
            group=group,
            client=client,
            max_count=max_count,
            visibility=visibility or group.visibility,
            bounds=bounds or {},
            polled_by=polled_by,
            address="192.0.2.1",
            attempt=attempt,
            settlements=carrying,
            last_append_ms=last_append_ms or {},
            has_other_waiters=has_other_waiters,
            closed=frozenset(closed),
            fingerprint=attempt_fingerprint(max_count, visibility),
        )
    )


async def granted(store: LeaseStore, group: Group, **options: Any) -> Grant:
    """Receive once and return the one grant that must result."""
    acquired = await ask(store, group, **options)
    assert len(acquired.grants) == 1, acquired
    return acquired.grants[0]


async def settled(store: LeaseStore, group: Group, verb: Verb, lease: Lease, **details: Any) -> SettlementResult:
    (only,) = await store.settle(group, [Settlement(verb=verb, lease=lease, **details)])
    return only


async def ack(store: LeaseStore, group: Group, lease: Lease, through: int | None = None) -> SettlementOutcome:
    return (await settled(store, group, Verb.ACK, lease, through=through)).outcome


async def nack(store: LeaseStore, group: Group, lease: Lease, **details: Any) -> SettlementOutcome:
    return (await settled(store, group, Verb.NACK, lease, **details)).outcome


async def extend(store: LeaseStore, group: Group, lease: Lease, visibility: timedelta) -> SettlementOutcome:
    return (await settled(store, group, Verb.EXTEND, lease, visibility=visibility)).outcome


async def report_short_pull(store: LeaseStore, group: Group, grant: Grant, after: int) -> None:
    """Report that the pull found only the messages before `after`."""
    await store.report_pull(group, [PullReport(grant, after)])


async def positions(store: LeaseStore, group: Group, client: str = "") -> dict[str, Position]:
    found = await store.positions(group, client, {})
    assert found is not None, "the lease state does not exist"
    return {message.queue: message for message in found[0]}


async def position(store: LeaseStore, group: Group, queue: str = QUEUE, *, client: str = "") -> Position:
    return (await positions(store, group, client))[queue]


async def committed(store: LeaseStore, group: Group, queue: str = QUEUE, *, client: str = "") -> int:
    return (await position(store, group, queue, client=client)).committed


async def exhausted(store: LeaseStore, group: Group, client: str = "") -> Sequence[ExhaustedMessage]:
    """Return the exhausted messages of a group."""
    found = await store.positions(group, client, {})
    assert found is not None, "the lease state does not exist"
    return found[1]
