"""Servers that are not as a gateway needs them, or are guarded: what it says, and that it works where it may."""

import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError

from eventually import until
from mqgate.adapters.redis.faults import is_elsewhere, translated
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.rate_limits import RedisRateLimits
from mqgate.adapters.redis.scripts import SCRIPTS, Script
from mqgate.adapters.redis.server import Server, judge
from mqgate.adapters.redis.wakes import Wakes
from mqgate.core.entries import Group, RateLimit
from mqgate.core.errors import MqgateError, StorageFull, StorageRefused, StorageUnavailable
from mqgate.core.lease import AcquireRequest, SettlementOutcome, Verb
from mqgate.stack import Stack
from mqgate.testing.leasing import ack, ask, granted, opened, settled
from mqgate.testing.message_leasing import workers
from mqgate.testing.samples import a_group, queues
from redis_server import is_up, operator, serving
from secured_stack import make_authority, sign_server
from wire import Wire

QUICK = 1.0
PATIENT = 20.0
GROUP = a_group()
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-redis.md"
# From here on servers know CLIENT SETINFO.
SETINFO = (7, 2)
WAIT = timedelta(seconds=1)
OpenServer = Callable[..., Server]


@pytest.fixture
async def open_server() -> AsyncIterator[OpenServer]:
    """A gateway's connection, with a short patience."""
    servers: list[Server] = []

    def open_server(url: str, timeout: float = QUICK) -> Server:
        servers.append(Server(url, timeout=timeout))
        return servers[-1]

    yield open_server
    for server in servers:
        await server.close()


@pytest.fixture
def plain(redis: Stack) -> str:
    """Skips, or fails, where no server can run."""
    return redis.redis_url


async def test_a_replica_is_not_worked_on(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """It would refuse every write; after a failover the same address may lead to the primary, so it is waited for."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        redis.replicaof("127.0.0.1", str(port + 1))
        server = open_server(f"redis://127.0.0.1:{port}")

        with pytest.raises(StorageUnavailable, match="replica"):
            await server.connect()

        redis.replicaof("NO", "ONE")
        await server.connect()


async def test_a_primary_that_became_a_replica_is_left(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """READONLY: the connection is given up, and when the address leads to a primary again all goes on."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        store = RedisLeaseStore(open_server(f"redis://127.0.0.1:{port}"))
        await opened(store, GROUP, queues(9))
        redis.replicaof("127.0.0.1", str(port + 1))

        with pytest.raises(StorageUnavailable, match="READONLY"):
            await ask(store, GROUP)
        with pytest.raises(StorageUnavailable, match="replica"):
            await ask(store, GROUP)

        redis.replicaof("NO", "ONE")
        assert (await granted(store, GROUP)).delivery == 1


async def test_a_full_server_says_so_and_nothing_is_half_done(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """OOM: with room again everything is as it was."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        store = RedisLeaseStore(open_server(f"redis://127.0.0.1:{port}"))
        for group in (GROUP, workers(name="others")):
            await opened(store, group, queues(9))
            before = await store.positions(group, "", {})
            redis.config_set("maxmemory", "1")

            with pytest.raises(StorageFull, match="maxmemory"):
                await ask(store, group)

            redis.config_set("maxmemory", "0")
            assert await store.positions(group, "", {}) == before
            grant = await granted(store, group)
            assert (grant.delivery, grant.lease.epoch) == (1, 1)


async def test_a_slot_that_is_elsewhere_is_told(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """MOVED and ASK: a gateway talks to one node, and says where the group's slot is."""
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(tmp_path / name, "--cluster-enabled", "yes")) for name in "ab"]
        one, other = (stack.enter_context(operator(f"redis://127.0.0.1:{port}")) for port in ports)
        slot = one.execute_command("CLUSTER", "KEYSLOT", f"mqgate:{{{GROUP.name}}}")
        one.execute_command("CLUSTER", "ADDSLOTS", *(each for each in range(16384) if each != slot))
        other.execute_command("CLUSTER", "ADDSLOTS", slot)
        one.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[1])
        await until(lambda: is_up(one))
        await until(lambda: is_up(other))
        here, there = (RedisLeaseStore(open_server(f"redis://127.0.0.1:{port}")) for port in ports)

        with pytest.raises(StorageUnavailable, match=f"MOVED {slot} 127.0.0.1:{ports[1]}"):
            await ask(here, GROUP)

        assert await opened(there, GROUP, queues(9))
        other.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", one.execute_command("CLUSTER", "MYID"))
        other.flushall()
        with pytest.raises(StorageUnavailable, match=f"ASK {slot} 127.0.0.1:{ports[0]}"):
            await ask(there, GROUP)


async def test_every_script_stays_in_the_slot_of_its_group(cluster_url: str) -> None:
    """A node of a cluster has keys of its own slots only, and would refuse any other."""
    with operator(cluster_url) as node:
        await until(lambda: is_up(node))

        with pytest.raises(RedisError, match="cluster"):
            node.eval("return redis.call('SET', 'elsewhere', 1)", 1, "mqgate:{q}")

    await walk(cluster_url)


async def test_a_server_that_is_loading_is_waited_for(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """LOADING: no longer than a request may take."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        redis.mset({f"key {number}": "x" * 100 for number in range(10_000)})
        redis.save()
    slow = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    with serving(tmp_path, *slow, is_ready=False) as port:
        server = open_server(f"redis://127.0.0.1:{port}", timeout=2 * QUICK)

        with pytest.raises(StorageUnavailable, match="LOADING"):
            await server.connect()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_is_refused(
    plain: str, tmp_path: Path, open_server: OpenServer, policy: str
) -> None:
    """A key that goes away alone would be a lease that two hold; the text says what to set."""
    with serving(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", policy) as port:
        server = open_server(f"redis://127.0.0.1:{port}")

        with pytest.raises(StorageRefused, match=f"{policy}.*set maxmemory-policy noeviction"):
            await server.connect()


@pytest.mark.parametrize(("version", "is_welcome"), [("6.0.16", False), ("6.2.0", True), ("7.4.1", True), ("9", True)])
def test_versions_are_compared_as_numbers(version: str, *, is_welcome: bool) -> None:
    """Scripts need what 6.2 brought; Valkey calls itself by the Redis that it is like."""
    info = {"redis_version": version, "maxmemory_policy": "noeviction", "role": "master", "run_id": "x"}

    if is_welcome:
        judge(info)
    else:
        with pytest.raises(StorageRefused, match=r"6.0.16 is too old: 6.2"):
            judge(info)


async def test_a_wrong_password_is_for_an_operator_to_mend(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """Repeating does not help, so it is not waited for; nothing of the password is shown."""
    with serving(tmp_path, "--requirepass", "right") as port:
        for door in (":wrong@", "someone:wrong@", ""):
            with pytest.raises(StorageRefused, match="does not let us in") as refused:
                await open_server(f"redis://{door}127.0.0.1:{port}").connect()
            assert "wrong@" not in refused.value.detail

        store = RedisLeaseStore(open_server(f"redis://:right@127.0.0.1:{port}"))
        assert await opened(store, GROUP, queues(9))


def let_in(redis: Any, *more: str) -> None:
    """Make the user that the page tells operators to make."""
    (line,) = re.findall(r"^ACL SETUSER (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    is_old = tuple(map(int, redis.info("server")["redis_version"].split(".")[:2])) < SETINFO
    rules = [rule for rule in line.split() if not is_old or rule != "+client|setinfo"]
    redis.execute_command("ACL", "SETUSER", *rules, *more)


async def test_the_rights_that_are_documented_are_enough(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """Every step of every mode, with a user who may do nothing else."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        let_in(redis)
        redis.acl_log_reset()
        url = f"redis://mqgate:secret@127.0.0.1:{port}"
        await walk(url)
        server = open_server(url, timeout=PATIENT)
        heard: list[str] = []
        wakes = Wakes(server, "mqgate:wake", "us", lambda *_: None, lambda: heard.append("subscribed"))
        wakes.start()
        await until(lambda: _is_so(bool(heard)))
        await wakes.stop()

        assert [entry["object"] for entry in redis.acl_log()] == []


async def _is_so(value: bool) -> bool:
    return value


@pytest.mark.parametrize("missing", ["-evalsha", "-script|load", "-info", "-hset", "-client|setname", "resetkeys"])
async def test_a_right_that_is_missing_is_for_an_operator_to_mend(
    plain: str, tmp_path: Path, open_server: OpenServer, missing: str
) -> None:
    """Told as such, wherever it shows first."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        let_in(redis, missing)
        store = RedisLeaseStore(open_server(f"redis://mqgate:secret@127.0.0.1:{port}"))

        with pytest.raises(StorageRefused, match="does not let us in"):
            await opened(store, GROUP, queues(9))


async def test_tls_is_spoken_to_a_server_that_an_authority_of_ours_signed(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """And to no other. The server behind it is plain: whoever comes to it has passed a real TLS."""
    sign_server(make_authority(tmp_path / "ca.pem"), tmp_path)
    make_authority(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with serving(tmp_path) as port:
        async with Wire(f"rediss://127.0.0.1:{port}/0").open(context) as wire:
            await walk(f"{wire.url}?ssl_ca_certs={tmp_path}/ca.pem")

            for stranger in (f"{wire.url}?ssl_ca_certs={tmp_path}/other.pem", wire.url):
                with pytest.raises(StorageRefused, match=r"certificate"):
                    await open_server(stranger).connect()
            with pytest.raises(StorageUnavailable):
                await open_server(wire.url.replace("rediss", "redis")).connect()


def _waiting(group: Group) -> AcquireRequest:
    """A receive that finds nothing and waits."""
    return AcquireRequest(group=group, client="", max_count=0, visibility=group.visibility, bounds={}, wait=WAIT)


class Recorded(Server):
    """Remembers which scripts it ran."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout=PATIENT)
        self.ran: set[str] = set()

    async def evaluate(self, script: Script, *rest: Any) -> Any:
        self.ran.add(script.name)
        return await super().evaluate(script, *rest)


async def walk(url: str) -> None:
    """Through every script."""
    server = Recorded(url)
    store = RedisLeaseStore(server)
    for group in (a_group(name="q", max_attempts=1), workers(name="m", max_attempts=1)):
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=1)
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED
        last = await granted(store, group, max_count=1)
        dying = (await settled(store, group, Verb.NACK, last.lease)).exhausted
        assert dying is not None
        assert await store.settle_dead(group, dying)
        await store.report_pull(group, [])
        # Twice: whoever waits longer looks for how long others do.
        for _ in range(2):
            await store.acquire(_waiting(group))
        await store.seek(group, "", {"local:0": 0}, is_dry_run=False)
        await store.positions(group, "", {})
        await store.committed(group.name)
        await store.clients(group.name)
        await store.wake(group.name)
        await store.forget(group.name)
    await RedisRateLimits(server).take("shop", RateLimit(rate=1, burst=1), 1)
    await server.probe()
    await server.close()
    assert server.ran == {each.name for each in SCRIPTS}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LOADING Redis is loading the dataset in memory", StorageUnavailable),
        ("MOVED 3999 127.0.0.1:6381", StorageUnavailable),
        ("ASK 3999 127.0.0.1:6381", StorageUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to", StorageUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StorageUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StorageFull),
        (
            "ERR Error running script (call to f_6b): @user_script:9: @user_script: 9: -OOM command not allowed",
            StorageFull,
        ),
        ("NOPERM this user has no permissions to run the 'evalsha' command", StorageRefused),
        ("DENIED Redis is running in protected mode", StorageRefused),
        ("ERR user_script:9: attempt to index a nil value", StorageRefused),
    ],
)
def test_what_the_server_says_has_one_meaning(text: str, expected: type[MqgateError]) -> None:
    """Also the words that no server here can be made to say, and as Redis 6.2 wraps them."""
    assert type(translated(text)) is expected


def test_a_replica_is_known_by_either_wording() -> None:
    """Redis 6.2 says it from inside a script."""
    wrapped = "ERR Error running script (call to f_6b): @user_script:9: @user_script: 9: -READONLY You can't write"

    assert is_elsewhere("READONLY You can't write against a read only replica.")
    assert is_elsewhere(wrapped)
    assert not is_elsewhere("OOM command not allowed")
