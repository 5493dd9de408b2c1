"""Fuzzed requests on both deployments: bad input is never a fault of the gateway, and no request blocks the others.

`make test` sends a few thousand to the embedded deployment. `make soak` sends 100,000 to each; FUZZ_REQUESTS and
FUZZ_SEED say how many, and which.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fuzz_gateway import fuzz_target
from fuzz_run import MAX_BLOCKED, Target, fuzz

from mqgate.settings import Settings, StatsSettings
from production_set import as_environment, on_production

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "3000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
IS_SOAK = "FUZZ_REQUESTS" in os.environ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if IS_SOAK else 300)]


@pytest.fixture
def embedded(settings: Settings) -> Iterator[Target]:
    with fuzz_target(settings, {}) as target:
        yield target


@pytest.fixture
def distributed(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Target]:
    servers = [request.getfixturevalue(name) for name in ("rocketmq", "redis", "postgres")]
    settings = replace(settings, stats=StatsSettings(engine="postgres"))
    with on_production(settings, *servers) as own, fuzz_target(own, as_environment(own)) as target:
        yield target


@pytest.mark.parametrize(
    "deployment",
    [
        "embedded",
        pytest.param(
            "distributed",
            marks=[
                *(pytest.mark.rocketmq, pytest.mark.redis, pytest.mark.postgres),
                pytest.mark.skipif(not IS_SOAK, reason="only `make soak` sends fuzzed requests to all servers"),
            ],
        ),
    ],
)
async def test_no_request_fails_the_gateway_or_blocks_it(deployment: str, request: pytest.FixtureRequest) -> None:
    """A 500 is a bug, and a request that computes for long delays all others: one client could stop the service."""
    target = request.getfixturevalue(deployment)

    report = await fuzz(target, REQUESTS, SEED)

    if report.failures or report.blocked > MAX_BLOCKED:
        pytest.fail(str(report), pytrace=False)
    print(report)  # noqa: T201 - the figures of a soak
