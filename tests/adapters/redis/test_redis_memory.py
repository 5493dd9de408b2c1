"""What a group takes of Redis' memory: no more than the page says, and told to whoever asks."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from mqgate.adapters.redis.health import sizes
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.server import Server
from mqgate.core.entries import Group, Mode
from mqgate.core.lease import MIN_REMEMBERED, Settlement, SettlementOutcome, Verb
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import ack, ask, granted, opened
from mqgate.testing.message_leasing import placed, workers
from mqgate.testing.samples import a_group, queues

# In message mode so many grants end before the oldest are forgotten together.
FORGETTING = 64
# Of docs/how-to/use-redis.md, for the server that takes most, and a fifth more.
RECEIPT, GRANT, QUEUE = 106 * 1.2, 190 * 1.2, 570 * 1.2


# How much is kept is the same in a cluster.
pytestmark = pytest.mark.parametrize("server", ["alone"], indirect=True)


@pytest.fixture
def store(server: Server, clock: ManualClock, prefix: str) -> RedisLeaseStore:
    return RedisLeaseStore(server, prefix=prefix, clock=clock)


async def consume(
    store: RedisLeaseStore,
    clock: ManualClock,
    group: Group,
    count: int,
    clients: Sequence[str] = ("",),
    verb: Verb = Verb.ACK,
) -> None:
    """So many receives of one message, in turns, each of which settles the one before; all of it takes an hour."""
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
    ("mode", "verb", "kept_in", "each"),
    [(Mode.QUEUE, Verb.NACK, "unacked", RECEIPT), (Mode.MESSAGE, Verb.ACK, "grants", GRANT)],
)
async def test_what_ended_long_ago_takes_no_memory(
    store: RedisLeaseStore,
    server: Server,
    clock: ManualClock,
    prefix: str,
    mode: Mode,
    verb: Verb,
    kept_in: str,
    each: float,
) -> None:
    """Leases are remembered for ten minutes, and 10,000 of them for longer: then the oldest go with new ones."""
    group = a_group(mode=mode, max_attempts=100_000)
    await opened(store, group, queues(100_000))

    await consume(store, clock, group, MIN_REMEMBERED * 6 // 5, verb=verb)

    kept = await server.command("HLEN", f"{prefix}:{{{group.name}}}:{kept_in}")
    assert 0 <= kept - MIN_REMEMBERED < (FORGETTING if mode is Mode.MESSAGE else 1)
    assert 0 < (await sizes(server, prefix)).of_groups[group.name] < MIN_REMEMBERED * each + QUEUE


async def test_an_ack_in_queue_mode_leaves_nothing_behind(
    store: RedisLeaseStore, server: Server, clock: ManualClock, prefix: str
) -> None:
    """Most leases end so: none of them is kept, and each is known all the same."""
    group = a_group()
    await opened(store, group, queues(1_000))
    first = (await granted(store, group, max_count=1)).lease
    await ack(store, group, first)

    await consume(store, clock, group, 100)

    assert await server.command("HLEN", f"{prefix}:{{{group.name}}}:unacked") == 0
    assert await ack(store, group, first) is SettlementOutcome.DUPLICATE


async def test_an_attempt_keeps_nothing_of_what_a_filter_did_not(
    store: RedisLeaseStore, server: Server, prefix: str
) -> None:
    """It would be read again at each step: the longer an attempt looks for a rare tag, the slower."""
    group = workers(tags=frozenset("a"))
    await opened(store, group, queues(50))

    for _ in range(50):
        await placed(store, group, await ask(store, group, max_count=1, attempt="a1"), {})

    assert await server.command("HLEN", f"{prefix}:{{{group.name}}}:attempts") == 0


@pytest.mark.slow
async def test_the_clients_of_a_broadcast_group_share_its_memory(
    store: RedisLeaseStore, server: Server, clock: ManualClock, prefix: str
) -> None:
    """A thousand clients with 10,000 nacks each would be most of a gigabyte. What one leaves is room for others."""
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


async def test_sizes_are_of_groups_under_this_prefix(server: Server, store: RedisLeaseStore, prefix: str) -> None:
    """Others may use the server too; and a walk that is too long is broken off, and says so."""
    other = RedisLeaseStore(server, prefix=f"{prefix}*")
    await opened(store, a_group(), queues(9))
    await opened(other, a_group(name="other"), queues(9))

    found = [await sizes(server, each) for each in (prefix, f"{prefix}*")]

    assert [(set(each.of_groups), each.is_whole) for each in found] == [({"workers"}, True), ({"other"}, True)]
    assert await sizes(server, prefix, most_keys=0) == ({}, False)
