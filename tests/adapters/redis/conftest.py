"""Lease stores on a real server, each under a prefix of its own: a server alone, and a node of a cluster."""

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
    """A node that has the slots of the groups and producers that tests name, and no others: it refuses other keys.

    A node with all slots would not: from scripts like ours it takes keys of any slot that is its own.
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
