"""Memory of a group in Redis: within the documented limits, and reported."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.report import group_sizes
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import MIN_REMEMBERED, Settlement, SettlementOutcome, Verb
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ack, ask, granted, opened
from mqgate.testing.message_leasing import report_pulled, workers
from mqgate.testing.samples import a_group, queues

# In message mode, old grants are deleted once in this many grants.
FORGETTING = 64
# Bytes of docs/how-to/use-redis.md for the server version that needs most, plus 20 percent.
RECEIPT, GRANT, QUEUE = 106 * 1.2, 190 * 1.2, 570 * 1.2


# The stored data is the same in a cluster.
pytestmark = pytest.mark.parametrize("server", ["alone"], indirect=True)


@pytest.fixture
def store(server: RedisClient, clock: ManualClock, prefix: str) -> RedisLeaseStore:
    return RedisLeaseStore(server, prefix=prefix, clock=clock)


async def consume(
    store: RedisLeaseStore,
    clock: ManualClock,
    group: Group,
    count: int,
    clients: Sequence[str] = ("",),
    verb: Verb = Verb.ACK,
) -> None:
    """Run `count` receives of one message, each of which settles the one before, within an hour."""
    carried: dict[str, list[Settlement]] = {client: [] for client in clients}
    for number in range(count):
        client = clients[number % len(clients)]
        acquired = await ask(store, group, max_count=1, client=client, carrying=carried[client])
        carried[client] = [Settlement(verb=verb, lease=grant.lease) for grant in acquired.grants]
        assert carried[client], acquired
        clock.advance(timedelta(hours=1) / count)
    for settlements in carried.values():
        await store.settle(group, settlements)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "verb", "kept_in", "lease_bytes"),
    [(Mode.QUEUE, Verb.NACK, "unacked", RECEIPT), (Mode.MESSAGE, Verb.ACK, "grants", GRANT)],
)
async def test_leases_that_ended_long_ago_are_deleted(
    store: RedisLeaseStore,
    server: RedisClient,
    clock: ManualClock,
    prefix: str,
    mode: Mode,
    verb: Verb,
    kept_in: str,
    lease_bytes: float,
) -> None:
    """Ended leases are kept for ten minutes, and the newest 10,000 for longer; without a limit memory would fill."""
    group = a_group(mode=mode, max_attempts=100_000)
    await opened(store, group, queues(100_000))

    await consume(store, clock, group, MIN_REMEMBERED * 6 // 5, verb=verb)

    kept = await server.command("HLEN", f"{prefix}:{{{group.name}}}:{kept_in}")
    assert 0 <= kept - MIN_REMEMBERED < (FORGETTING if mode is Mode.MESSAGE else 1)
    assert 0 < (await group_sizes(server, prefix)).bytes_by_group[group.name] < MIN_REMEMBERED * lease_bytes + QUEUE


async def test_an_ack_in_queue_mode_stores_no_lease_end(
    store: RedisLeaseStore, server: RedisClient, clock: ManualClock, prefix: str
) -> None:
    """Most leases end with an ack. A repeated ack is a duplicate all the same."""
    group = a_group()
    await opened(store, group, queues(1_000))
    first = (await granted(store, group, max_count=1)).lease
    await ack(store, group, first)

    await consume(store, clock, group, 100)

    assert await server.command("HLEN", f"{prefix}:{{{group.name}}}:unacked") == 0
    assert await ack(store, group, first) is SettlementOutcome.DUPLICATE


async def test_an_attempt_drops_grants_that_a_filter_has_emptied(
    store: RedisLeaseStore, server: RedisClient, prefix: str
) -> None:
    """Every step would read them again, so an attempt that searches for a rare tag would become slower and slower."""
    group = workers(tags=frozenset("a"))
    await opened(store, group, queues(50))

    for _ in range(50):
        await report_pulled(store, group, await ask(store, group, max_count=1, attempt="a1"), {})

    assert await server.command("HLEN", f"{prefix}:{{{group.name}}}:attempts") == 0


@pytest.mark.slow
async def test_the_clients_of_a_broadcast_group_share_one_limit(
    store: RedisLeaseStore, server: RedisClient, clock: ManualClock, prefix: str
) -> None:
    """A thousand clients with 10,000 nacks each would need most of a gigabyte. Expired clients free their share."""
    group = a_group(mode=Mode.BROADCAST, client_ttl=timedelta(days=1), max_attempts=100_000)
    clients = [f"client-{number}" for number in range(8)]
    for client in clients:
        await opened(store, group, queues(100_000), client=client)

    async def kept() -> list[int]:
        keys = [f"{prefix}:{{{group.name}}}:client:{client}:unacked" for client in clients]
        return [await server.command("HLEN", key) for key in keys]

    await consume(store, clock, group, MIN_REMEMBERED * 6 // 5, clients, Verb.NACK)
    of_all = await kept()
    clock.advance(timedelta(days=2))
    await opened(store, group, queues(100_000), client="another")
    await consume(store, clock, group, 11, ["another"], Verb.NACK)

    assert (sum(of_all), min(of_all) > 0) == (MIN_REMEMBERED, True)
    assert sum(await kept()) == 0
    counted = await server.command("HGET", f"{prefix}:{{{group.name}}}:remembered", "receipts")
    assert int(counted) == 10


async def test_sizes_count_only_groups_under_the_prefix(
    server: RedisClient, store: RedisLeaseStore, prefix: str
) -> None:
    """Other applications may use the server. A scan over too many keys stops and is reported as incomplete."""
    other = RedisLeaseStore(server, prefix=f"{prefix}*")
    await opened(store, a_group(), queues(9))
    await opened(other, a_group(name="other"), queues(9))

    found = [await group_sizes(server, searched) for searched in (prefix, f"{prefix}*")]

    assert [(set(sizes.bytes_by_group), sizes.is_complete) for sizes in found] == [
        ({"workers"}, True),
        ({"other"}, True),
    ]
    assert await group_sizes(server, prefix, max_keys=0) == ({}, False)
