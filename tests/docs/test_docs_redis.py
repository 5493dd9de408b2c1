"""The keys and fields that the page about Redis lists exist on a real server, and errors have the listed meaning."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
from doc_pages import ROOT, without_blocks

from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.faults import translated
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.adapters.redis.rate_limits import RedisRateLimits
from mqgate.core.backoff import Backoff
from mqgate.core.entries import Group, Mode, RateLimit
from mqgate.core.lease import AcquireRequest, BrokerBoot, PullReport, QueueBounds, Settlement, Verb
from mqgate.http.errors import STATUS
from mqgate.stack import Stack
from mqgate.testing.leasing import QUEUE, ack, ask, granted, nack, opened
from mqgate.testing.message_leasing import one, workers
from mqgate.testing.samples import a_group, queues
from redis_server import operator

PAGE = ROOT / "docs" / "how-to" / "use-redis.md"
RATE = RateLimit(rate=1, burst=9)


def _table(head: str) -> list[list[str]]:
    """Return the rows of the table below the heading with this beginning."""
    _, _, rest = without_blocks(PAGE).partition(f"\n| {head}")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _words(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


class ObservedStore:
    """A store under its own prefix, and the keys that were ever seen under it."""

    def __init__(self, server: RedisClient, url: str) -> None:
        self.server = server
        self.url = url
        self.prefix = f"test-{uuid4().hex[:12]}"
        self.store = RedisLeaseStore(server, prefix=self.prefix)
        self.keys: set[str] = set()
        self.fields: dict[str, set[str]] = {}
        self.lines: set[str] = set()

    def look(self) -> None:
        with operator(self.url) as redis:
            # What other tests left there is a hundred thousand keys, and some of ours live for seconds.
            for key in redis.scan_iter(f"{self.prefix}:*", count=10_000):
                name = _as_on_the_page(key.decode().removeprefix(self.prefix))
                self.keys.add(name)
                if redis.type(key) == b"hash":
                    self.fields.setdefault(name, set()).update(field.decode() for field in redis.hkeys(key))
                if name == ":positions":
                    for line in redis.hvals(key):
                        self.lines.update(member.partition("=")[0] for member in line.decode().split(" "))


def _as_on_the_page(key: str) -> str:
    key = re.sub(r"^:\{[^}]*\}", "", key)
    key = re.sub(r"^:client:screen:.*", ":client:<clientId>:...", key)
    key = re.sub(r"^:rate:\{.*\}", "<prefix>:rate:{<producer>}", key)
    return key.replace(QUEUE, "<queue>")


@pytest.fixture
async def seen(redis: Stack) -> AsyncIterator[ObservedStore]:
    server = RedisClient(redis.redis_url, timeout=10.0)
    yield ObservedStore(server, redis.redis_url)
    await server.close()


def _booted(group: Group) -> AcquireRequest:
    """Receive nothing, report the boot time of a broker, and park."""
    wait = timedelta(seconds=30)
    boots = {QUEUE: BrokerBoot(1, 0)}
    bounds = {QUEUE: QueueBounds(0, 9)}
    return AcquireRequest(
        group=group,
        client="",
        max_count=0,
        visibility=group.visibility,
        bounds=bounds,
        boots=boots,
        wait=wait,
        attempt="x",
    )


async def _live_in_queues(seen: ObservedStore) -> None:
    """Do everything that can happen to a group in queue mode."""
    store, group = seen.store, a_group(name="queues", max_attempts=2, rate_limit=RATE)
    await opened(store, group, queues(9))
    first = await granted(store, group, attempt="a", max_count=1)
    seen.look()
    await ack(store, group, first.lease)
    seen.look()
    await nack(store, group, (await granted(store, group, max_count=1)).lease, reason="no")
    last = await granted(store, group, max_count=1)
    seen.look()
    await nack(store, group, last.lease, reason="no")
    await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)
    await store.acquire(_booted(group))
    seen.look()
    await store.positions(group, "", queues((9, 9)))
    seen.look()


async def _lose_in_queues(seen: ObservedStore) -> None:
    """Let retention delete messages, and let a lease expire."""
    group = a_group(name="losses", backoff=Backoff(steps=(timedelta(0),)))
    await opened(seen.store, group, queues(9))
    moment = timedelta(milliseconds=1)
    wish = AcquireRequest(group=group, client="", max_count=1, visibility=moment, bounds={QUEUE: QueueBounds(1, 9)})
    for _ in range(2):
        while not (await seen.store.acquire(wish)).grants:  # noqa: ASYNC110 - each is a question
            await asyncio.sleep(0.002)
    seen.look()


async def _live_as_a_client(seen: ObservedStore) -> None:
    group = a_group(name="screens", mode=Mode.BROADCAST)
    await opened(seen.store, group, queues(9), client="screen")
    await nack(seen.store, group, (await granted(seen.store, group, client="screen")).lease)
    await granted(seen.store, group, client="screen")
    seen.look()


async def _live_in_messages(seen: ObservedStore) -> None:
    """Do everything that can happen to an ordered group in message mode."""
    store, group = seen.store, workers(name="messages", max_attempts=2, is_ordered=True)
    await opened(store, group, queues(9))
    grant = await granted(store, group, attempt="a", max_count=2)
    seen.look()
    await store.report_pull(group, [PullReport(grant, 2, {0: "k", 1: "k"})])
    seen.look()
    lease = grant.lease._replace(next=1)
    for _ in range(group.max_attempts):
        await nack(store, group, lease)
        seen.look()
        lease = await one(store, group)
    await store.positions(group, "", queues((2, 9)))
    seen.look()


async def test_the_page_lists_exactly_the_keys_of_a_group(seen: ObservedStore) -> None:
    """Operators who inspect a group must find every key explained."""
    named = {key for row in _table("key, behind") for key in _words(row[0])}
    (others,) = re.findall(r"^Message mode has .*?\n\n", without_blocks(PAGE), re.MULTILINE | re.DOTALL)
    named |= {word for word in _words(others) if ":" in word}

    await _live_in_queues(seen)
    await _live_as_a_client(seen)
    await _live_in_messages(seen)
    await RedisRateLimits(seen.server, prefix=seen.prefix).take("shop", RATE, 1)
    seen.look()

    assert seen.keys == named


async def test_the_page_lists_exactly_the_fields_of_a_queue(seen: ObservedStore) -> None:
    """Bounds, committed offset, lease and last consumption are readable with redis-cli."""
    named = {field for row in _table("field of") for field in _words(row[0])}
    (state,) = [_words(row[2]) for row in _table("key, behind") if row[0] == "`:state`"]

    await _live_in_queues(seen)
    await _lose_in_queues(seen)
    of_queues = set(seen.lines)
    await _live_in_messages(seen)

    assert of_queues == named
    assert {"min", "max", "committed", "locked_until", "locked_by", "last_consumed_at"} <= named
    assert seen.fields[":state"] == {*state, QUEUE}
    assert seen.fields[":positions"] == {QUEUE}


def test_every_redis_error_has_the_code_and_retry_rule_of_the_page() -> None:
    """Operators search for the error text of Redis."""
    responses = [(word, row) for row in _table("Redis says") for word in _words(row[0])]

    assert len(responses) == 17
    for word, row in responses:
        error = translated(f"{word} why")
        assert (f"`{error.code}`", str(STATUS[type(error)])) == (row[1], row[2]), word
        assert error.retryable == row[3].startswith("yes"), word


async def test_a_step_is_one_round_trip(seen: ObservedStore) -> None:
    """However many settlements it carries."""
    store, group = seen.store, workers(name="trips")
    await opened(store, group, queues(1_000))
    before = seen.server.round_trips

    lease = (await granted(store, group, max_count=500)).lease
    acks = [Settlement(Verb.ACK, lease._replace(start=at, next=at + 1)) for at in range(500)]
    await ask(store, group, carrying=acks[:250])
    await store.settle(group, acks[250:])
    await store.positions(group, "", {})
    await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)
    await store.clients(group.name)

    assert seen.server.round_trips - before == 6
