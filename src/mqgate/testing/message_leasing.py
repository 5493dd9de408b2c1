"""Steps of a message-mode consumer on a lease store, for contracts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from mqgate.core.backoff import NO_BACKOFF
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import AcquireResult, Grant, Lease, PullReport
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.leasing import QUEUE, ask, position
from mqgate.testing.samples import a_group

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def workers(**changes: Any) -> Group:
    """Return a message-mode group. By default a failed message is ready again at once."""
    return a_group(mode=Mode.MESSAGE, **{"backoff": NO_BACKOFF, **changes})


def singles(acquired: AcquireResult) -> list[Lease]:
    """Return the lease of each granted message, as receipts carry them."""
    return [
        grant.lease._replace(start=offset, next=offset + 1)
        for grant in acquired.grants
        for offset in range(grant.lease.start, grant.lease.next)
    ]


def places(leases: Iterable[Lease]) -> list[tuple[str, int]]:
    return [(lease.queue, lease.start) for lease in leases]


async def taken(store: LeaseStore, group: Group, **options: Any) -> list[Lease]:
    return singles(await ask(store, group, **options))


async def one(store: LeaseStore, group: Group, **options: Any) -> Lease:
    """Receive one message, which must be granted."""
    (lease,) = await taken(store, group, max_count=1, **options)
    return lease


async def deliveries(store: LeaseStore, group: Group, **options: Any) -> list[int]:
    return [grant.delivery for grant in (await ask(store, group, **options)).grants]


async def report_pulled(
    store: LeaseStore,
    group: Group,
    acquired: AcquireResult,
    keys: Mapping[int, str | None],
    after: int | None = None,
) -> list[Lease]:
    """Report that the pull found messages with these keys. Return the leases that stay."""
    stay = await store.report_pull(
        group,
        [
            PullReport(
                grant,
                grant.lease.next if after is None else after,
                {offset: key for offset, key in keys.items() if grant.lease.start <= offset < grant.lease.next},
            )
            for grant in acquired.grants
        ],
    )
    return [
        lease for lease in singles(acquired) if any(lease.start in offsets for offsets in stay) and lease.start in keys
    ]


async def in_turn(store: LeaseStore, group: Group, keys: Mapping[int, str | None], **options: Any) -> list[int]:
    """Receive and report the pull in an ordered or filtered group. Return the offsets that are delivered."""
    return [lease.start for lease in await report_pulled(store, group, await ask(store, group, **options), keys)]


async def returned(store: LeaseStore, group: Group, grants: Sequence[Grant]) -> None:
    """Report that the response could not be delivered."""
    await store.report_pull(group, [PullReport(grant, grant.lease.start) for grant in grants])


async def lag(store: LeaseStore, group: Group, queue: str = QUEUE) -> tuple[int, int, int]:
    """Return the ready, leased and waiting counts."""
    found = await position(store, group, queue)
    return found.ready, found.leased, found.waiting
