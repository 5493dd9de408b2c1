"""Fixtures: a single Redis server and a cluster node, and a key prefix per test."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from eventually import until
from mqgate.adapters.redis.client import RedisClient
from mqgate.stack import Stack
from redis_server import is_up, operator, serving


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def cluster_url(redis: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a cluster node that has only the slots of the groups and producers of the tests.

    A node with all slots would not detect keys of a wrong slot: scripts may use any slot of the node.
    """
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with serving(tmp_path_factory.mktemp("cluster"), *options) as port:
        url = f"redis://127.0.0.1:{port}/0"
        with operator(url) as node:
            slots = {
                node.execute_command("CLUSTER", "KEYSLOT", name) for name in ("workers", "shop", "other", "q", "m")
            }
            node.execute_command("CLUSTER", "ADDSLOTS", *slots)
        yield url


@pytest.fixture(params=["alone", "cluster"])
async def server(request: pytest.FixtureRequest, redis: Stack) -> AsyncIterator[RedisClient]:
    url = redis.redis_url
    if request.param == "cluster":
        url = request.getfixturevalue("cluster_url")
        with operator(url) as node:
            await until(lambda: is_up(node))
    server = RedisClient(url, timeout=10.0)
    yield server
    await server.close()
