"""Hostile clients without a key: the short form of `make abuse`, on lowered limits and time-outs."""

import asyncio
from collections.abc import Iterator

import pytest
from attack_run import SHORT, AbuseRun
from attacks import ATTACKS, Attack
from site_under_attack import Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def abuse(tmp_path_factory: pytest.TempPathFactory, runner: asyncio.Runner) -> Iterator[AbuseRun]:
    site = Site(tmp_path_factory.mktemp("abuse") / "data", **SHORT.settings)
    runner.run(site.open())
    run = AbuseRun(site, SHORT)
    try:
        runner.run(run.start())
        yield run
    finally:
        run.close()
        site.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_withstood(attack: Attack, abuse: AbuseRun, runner: asyncio.Runner) -> None:
    """A client with a key sees no error and, unless the attack uses CPU, a p99 of at most 5 times its quiet value.

    The gateway stays within the memory that its settings allow, and releases connections, files and body bytes.
    """
    result = runner.run(abuse.run(attack))

    assert abuse.broken_promises(result) == []
