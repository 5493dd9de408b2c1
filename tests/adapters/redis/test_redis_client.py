"""Unsuitable and protected servers: the gateway reports what is wrong, and works with the documented rights."""

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
from mqgate.adapters.redis.client import RedisClient, check_server
from mqgate.adapters.redis.faults import is_wrong_server, translated
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.rate_limits import RedisRateLimits
from mqgate.adapters.redis.scripts import SCRIPTS, Script
from mqgate.adapters.redis.wake_ups import WakeUpSubscription
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
# The first version with CLIENT SETINFO.
SETINFO = (7, 2)
WAIT = timedelta(seconds=1)
OpenServer = Callable[..., RedisClient]


@pytest.fixture
async def open_server() -> AsyncIterator[OpenServer]:
    """Return a function that opens clients with a short timeout."""
    servers: list[RedisClient] = []

    def open_server(url: str, timeout: float = QUICK) -> RedisClient:
        servers.append(RedisClient(url, timeout=timeout))
        return servers[-1]

    yield open_server
    for server in servers:
        await server.close()


@pytest.fixture
def plain(redis: Stack) -> str:
    """Return the URL of a server. Skip or fail where no server can run."""
    return redis.redis_url


async def test_a_replica_is_refused_until_it_is_promoted(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """A replica refuses writes. After a failover the same address may lead to the primary, so the gateway retries."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        redis.replicaof("127.0.0.1", str(port + 1))
        server = open_server(f"redis://127.0.0.1:{port}")

        with pytest.raises(StorageUnavailable, match="replica"):
            await server.connect()

        redis.replicaof("NO", "ONE")
        await server.connect()


async def test_a_primary_that_became_a_replica_is_disconnected(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """After READONLY the gateway reconnects, so that it finds the new primary at the same address."""
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


async def test_a_full_server_is_reported_and_no_step_is_half_done(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """After OOM the state must be unchanged when memory is available again."""
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


async def test_a_redirect_of_a_cluster_is_reported(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """The gateway uses one node. The error names the node that has the slot of the group."""
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(tmp_path / name, "--cluster-enabled", "yes")) for name in "ab"]
        one, other = (stack.enter_context(operator(f"redis://127.0.0.1:{port}")) for port in ports)
        slot = one.execute_command("CLUSTER", "KEYSLOT", f"mqgate:{{{GROUP.name}}}")
        one.execute_command("CLUSTER", "ADDSLOTS", *(number for number in range(16384) if number != slot))
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


async def test_every_script_uses_only_the_slot_of_its_group(cluster_url: str) -> None:
    """A cluster node refuses keys of slots that it does not have."""
    with operator(cluster_url) as node:
        await until(lambda: is_up(node))

        with pytest.raises(RedisError, match="cluster"):
            node.eval("return redis.call('SET', 'elsewhere', 1)", 1, "mqgate:{q}")

    await run_every_script(cluster_url)


async def test_a_loading_server_is_reported_at_the_deadline(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """The gateway waits for LOADING to end, but not longer than the timeout."""
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
    """An evicted key would let two clients hold one lease. The error names the setting."""
    with serving(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", policy) as port:
        server = open_server(f"redis://127.0.0.1:{port}")

        with pytest.raises(StorageRefused, match=f"{policy}.*set maxmemory-policy noeviction"):
            await server.connect()


@pytest.mark.parametrize(("version", "is_accepted"), [("6.0.16", False), ("6.2.0", True), ("7.4.1", True), ("9", True)])
def test_versions_are_compared_as_numbers(version: str, *, is_accepted: bool) -> None:
    """Scripts require Redis 6.2. Valkey reports the version of Redis that it is compatible with."""
    info = {"redis_version": version, "maxmemory_policy": "noeviction", "role": "master", "run_id": "x"}

    if is_accepted:
        check_server(info)
    else:
        with pytest.raises(StorageRefused, match=r"6.0.16 is too old: 6.2"):
            check_server(info)


async def test_a_wrong_password_is_refused_at_once(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """A retry cannot help, so the gateway does not wait. The error must not show the password."""
    with serving(tmp_path, "--requirepass", "right") as port:
        for login in (":wrong@", "someone:wrong@", ""):
            with pytest.raises(StorageRefused, match="access denied") as refused:
                await open_server(f"redis://{login}127.0.0.1:{port}").connect()
            assert "wrong@" not in refused.value.detail

        store = RedisLeaseStore(open_server(f"redis://:right@127.0.0.1:{port}"))
        assert await opened(store, GROUP, queues(9))


def create_user(redis: Any, *more: str) -> None:
    """Create the user that the documentation describes."""
    (line,) = re.findall(r"^ACL SETUSER (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    is_old = tuple(map(int, redis.info("server")["redis_version"].split(".")[:2])) < SETINFO
    rules = [rule for rule in line.split() if not is_old or rule != "+client|setinfo"]
    redis.execute_command("ACL", "SETUSER", *rules, *more)


async def test_the_documented_rights_are_sufficient(plain: str, tmp_path: Path, open_server: OpenServer) -> None:
    """Operators grant exactly these rights, so every script of every mode must run with them."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        create_user(redis)
        redis.acl_log_reset()
        url = f"redis://mqgate:secret@127.0.0.1:{port}"
        await run_every_script(url)
        server = open_server(url, timeout=PATIENT)
        notices: list[str] = []
        subscription = WakeUpSubscription(
            server, "mqgate:wake", "us", lambda *_: None, lambda: notices.append("subscribed")
        )
        subscription.start()
        await until(lambda: _is_so(bool(notices)))
        await subscription.stop()

        assert [entry["object"] for entry in redis.acl_log()] == []


async def _is_so(value: bool) -> bool:
    return value


@pytest.mark.parametrize("missing", ["-evalsha", "-script|load", "-info", "-hset", "-client|setname", "resetkeys"])
async def test_a_missing_right_is_reported_as_access_denied(
    plain: str, tmp_path: Path, open_server: OpenServer, missing: str
) -> None:
    """Only an operator can correct it, whichever command is denied first."""
    with serving(tmp_path) as port, operator(f"redis://127.0.0.1:{port}") as redis:
        create_user(redis, missing)
        store = RedisLeaseStore(open_server(f"redis://mqgate:secret@127.0.0.1:{port}"))

        with pytest.raises(StorageRefused, match="access denied"):
            await opened(store, GROUP, queues(9))


async def test_tls_accepts_only_servers_of_the_configured_authority(
    plain: str, tmp_path: Path, open_server: OpenServer
) -> None:
    """A gateway must not send its password to another server. A TLS proxy in front of a plain server ends the TLS."""
    sign_server(make_authority(tmp_path / "ca.pem"), tmp_path)
    make_authority(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with serving(tmp_path) as port:
        async with Wire(f"rediss://127.0.0.1:{port}/0").open(context) as wire:
            await run_every_script(f"{wire.url}?ssl_ca_certs={tmp_path}/ca.pem")

            for untrusted in (f"{wire.url}?ssl_ca_certs={tmp_path}/other.pem", wire.url):
                with pytest.raises(StorageRefused, match=r"certificate"):
                    await open_server(untrusted).connect()
            with pytest.raises(StorageUnavailable):
                await open_server(wire.url.replace("rediss", "redis")).connect()


def _waiting(group: Group) -> AcquireRequest:
    """Return a receive that finds nothing and parks."""
    return AcquireRequest(group=group, client="", max_count=0, visibility=group.visibility, bounds={}, wait=WAIT)


class RecordingClient(RedisClient):
    """Client that records the scripts it ran."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout=PATIENT)
        self.ran: set[str] = set()

    async def evaluate(self, script: Script, *rest: Any) -> Any:
        self.ran.add(script.name)
        return await super().evaluate(script, *rest)


async def run_every_script(url: str) -> None:
    """Run every script at least once."""
    server = RecordingClient(url)
    store = RedisLeaseStore(server)
    for group in (a_group(name="q", max_attempts=1), workers(name="m", max_attempts=1)):
        await opened(store, group, queues(9))
        grant = await granted(store, group, max_count=1)
        assert await ack(store, group, grant.lease) is SettlementOutcome.APPLIED
        last = await granted(store, group, max_count=1)
        exhausted = (await settled(store, group, Verb.NACK, last.lease)).exhausted
        assert exhausted is not None
        assert await store.settle_dead(group, exhausted)
        await store.report_pull(group, [])
        # Twice: the second one reads how long the first is parked.
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
    assert server.ran == {script.name for script in SCRIPTS}


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
def test_every_error_reply_has_one_error_class(text: str, expected: type[MqgateError]) -> None:
    """This covers replies that a test server cannot produce, and the wrapping of Redis 6.2."""
    assert type(translated(text)) is expected


def test_a_replica_is_recognised_by_both_wordings() -> None:
    """Redis 6.2 wraps the errors of a script."""
    wrapped = "ERR Error running script (call to f_6b): @user_script:9: @user_script: 9: -READONLY You can't write"

    assert is_wrong_server("READONLY You can't write against a read only replica.")
    assert is_wrong_server(wrapped)
    assert not is_wrong_server("OOM command not allowed")
