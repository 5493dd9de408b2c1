"""The log, read directly from the brokers of a real RocketMQ."""

import json
import socket
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.adapters.rocketmq.offset_mirror import RocketMQOffsetMirror
from mqgate.core.message import Draft
from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.remoting.record import COMPRESSED, ZLIB
from mqgate.spark.log import FIELDS, AccessDenied, Ends, LogUnavailable, TopicMissing
from mqgate.spark.rocketmq_log import RocketMQLog
from mqgate.stack import Stack

BROKER = "local"
QUEUES = 4


@pytest.fixture
def namespace() -> str:
    """Return a namespace for this test, so that topics of the same name do not collide."""
    return uuid4().hex[:8]


@pytest.fixture
def log(rocketmq: Stack, namespace: str) -> Iterator[RocketMQLog]:
    log = RocketMQLog(rocketmq.name_server, namespace=namespace, retries=1)
    yield log
    log.close()


@pytest.fixture
async def client(rocketmq: Stack) -> AsyncIterator[RocketMQClient]:
    """Return a client without a namespace."""
    client = RocketMQClient([rocketmq.name_server])
    await client.routes.brokers()
    yield client
    await client.close()


@pytest.fixture
async def topic(client: RocketMQClient, namespace: str) -> str:
    """Create a topic directly on the broker, without a gateway."""
    await client.admin.put_topic(BROKER, f"{namespace}%orders", QUEUES)
    return "orders"


@pytest.fixture
async def filled(log: RocketMQLog, client: RocketMQClient, namespace: str, topic: str) -> str:
    """Return a topic with 500 messages per queue. Each body contains its queue and offset."""
    for queue_id in range(QUEUES):
        for start in range(0, 500, 100):
            bodies = [f"{queue_id}:{offset}".encode() for offset in range(start, start + 100)]
            messages = [(body, {"UNIQ_KEY": f"id-{body.decode()}", "TAGS": "new"}) for body in bodies]
            await client.messages.send_batch(BROKER, f"{namespace}%{topic}", queue_id, messages)
        # A broker tells of what it has confirmed a moment later.
        assert rows(log.read(topic, f"{BROKER}:{queue_id}", 499, 500, ["offset"]))
    return topic


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


async def test_every_column_equals_that_of_the_gateway(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """A query must return the same result without the gateway."""
    gateway = RocketMQMessageLog(client, wire=lambda name: f"{namespace}%{name}", cluster="one")
    drafts = [
        Draft("id-1", b"\x00\xff", "a key", "a tag", {"region": 'e"u', "KEYS": "a user's"}, slot=0),
        Draft("id-2", b"plain", slot=0),
    ]
    await gateway.append(topic, drafts)

    (first, second) = rows(log.read(topic, "local:0", 0, 2, list(FIELDS)))

    (message, _) = await gateway.read(topic, "local:0", 0, 2, 1_000)
    assert json.loads(first.pop("properties")) == {"region": 'e"u', "KEYS": "a user's"} == message.properties
    assert first.pop("storedAt") == message.stored_at
    assert first == {"id": "id-1", "offset": 0, "key": "a key", "tag": "a tag", "body": b"\x00\xff"}
    assert second.pop("storedAt") >= message.stored_at
    assert second == {"id": "id-2", "offset": 1, "key": None, "tag": None, "properties": None, "body": b"plain"}


async def test_a_message_without_id_has_the_id_of_the_broker(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """Batches of other clients have no id, and every row needs the same id as through the gateway."""
    sent = await client.messages.send_batch(BROKER, f"{namespace}%{topic}", 0, [(b"a", {}), (b"b", {"TAGS": "x"})])

    found = rows(log.read(topic, "local:0", 0, 2, ["id", "tag"]))

    assert found[0] == {"id": sent.offset_id, "tag": None}
    assert found[1]["id"] not in {None, sent.offset_id}


async def test_compressed_bodies_are_decompressed(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """Java producers compress large bodies."""
    body = b"again and " * 1_000
    wire = f"{namespace}%{topic}"
    await client.messages.send(BROKER, wire, 1, zlib.compress(body), {"UNIQ_KEY": "1"}, sys_flag=COMPRESSED | ZLIB)

    assert rows(log.read(topic, "local:1", 0, 1, ["body"])) == [{"body": body}]


@pytest.mark.parametrize(
    "columns", [list(FIELDS), ["offset", "body"], ["body", "tag", "offset"], ["offset", "storedAt"]]
)
async def test_a_queue_is_read_completely_and_in_order(log: RocketMQLog, filled: str, columns: list[str]) -> None:
    """Concurrent pulls must be returned in the order of the queue."""
    for queue, ends in log.ends(filled).items():
        batches = list(log.read(filled, queue, *ends, columns))

        table = pa.Table.from_batches(batches)
        assert table.schema == pa.schema([(name, FIELDS[name]) for name in columns])
        assert table["offset"].to_pylist() == list(range(500))
        if "body" in columns:
            number = queue.partition(":")[2]
            assert table["body"].to_pylist() == [f"{number}:{offset}".encode() for offset in range(500)]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 32), (31, 33), (17, 402), (499, 500), (7, 7), (9, 3)])
async def test_a_range_contains_exactly_the_requested_offsets(
    log: RocketMQLog, filled: str, start: int, end: int
) -> None:
    """Spark reads a range again after a failure and must get the same rows."""
    assert [row["offset"] for row in rows(log.read(filled, "local:2", start, end, ["offset"]))] == list(
        range(start, end)
    )


async def test_batches_are_neither_too_small_nor_too_large(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """Each batch has a fixed cost in Spark and uses memory."""
    for _ in range(60):
        await client.messages.send_batch(BROKER, f"{namespace}%{topic}", 0, [(b"x", {})] * 100)
    for _ in range(12):
        await client.messages.send(BROKER, f"{namespace}%{topic}", 1, b"x" * (1 << 20), {})

    small = list(log.read(topic, "local:0", 0, 6_000, ["offset", "body"]))
    large = list(log.read(topic, "local:1", 0, 12, ["offset", "body"]))

    assert sum(batch.num_rows for batch in small) == 6_000
    assert len(small) == 2
    assert [row["offset"] for batch in large for row in batch.to_pylist()] == list(range(12))
    assert max(batch.nbytes for batch in large) < 6 << 20


async def test_a_read_without_columns_counts_rows(log: RocketMQLog, filled: str) -> None:
    """Rows without columns are still rows."""
    assert sum(batch.num_rows for batch in log.read(filled, "local:0", 0, 500, [])) == 500


@pytest.mark.parametrize(("start", "end", "found"), [(-1, 5, 0), (400, 700, 100), (500, 700, 0), (5_000, 5_100, 0)])
async def test_a_read_ends_at_missing_messages_without_an_error(
    log: RocketMQLog, filled: str, start: int, end: int, found: int
) -> None:
    """The caller compares the offsets and decides, after retention or a recreated topic."""
    assert len(rows(log.read(filled, "local:0", start, end, ["offset"]))) == found


async def test_a_message_is_readable_as_soon_as_it_is_confirmed(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """A broker indexes it later, and a reader must not report it as lost."""
    for turn in range(50):
        sent = await client.messages.send(BROKER, f"{namespace}%{topic}", 0, b"x", {})

        assert len(rows(log.read(topic, "local:0", sent.queue_offset, sent.queue_offset + 1, ["offset"]))) == 1, turn


async def test_the_ends_of_all_queues_are_returned(
    log: RocketMQLog, client: RocketMQClient, topic: str, namespace
) -> None:
    """The driver plans with them, including empty queues."""
    await client.messages.send_batch(BROKER, f"{namespace}%{topic}", 2, [(b"x", {})] * 3)
    rows(log.read(topic, "local:2", 2, 3, ["offset"]))

    assert log.ends(topic) == {f"local:{number}": Ends(0, 3 if number == 2 else 0) for number in range(QUEUES)}


async def test_offsets_are_found_by_time(log: RocketMQLog, client: RocketMQClient, topic: str, namespace) -> None:
    """`startingTimestamp` starts with the first message stored at or after the instant."""
    for _ in range(3):
        await client.messages.send(BROKER, f"{namespace}%{topic}", 0, b"x", {})
    found = rows(log.read(topic, "local:0", 0, 3, ["storedAt"]))
    times = [int(row["storedAt"].timestamp() * 1000) for row in found]

    assert log.offsets_at(topic, times[0])["local:0"] == 0
    assert log.offsets_at(topic, -5)["local:0"] == 0
    assert log.offsets_at(topic, times[2])["local:0"] == times.index(times[2])
    later = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    assert log.offsets_at(topic, later) == {"local:0": 3, "local:1": 0, "local:2": 0, "local:3": 0}


async def test_committed_offsets_are_visible_to_other_tools(
    log: RocketMQLog, client: RocketMQClient, filled: str, namespace: str
) -> None:
    """The RocketMQ tools and the offset mirror of the gateway show the progress of Spark."""
    gateway = RocketMQMessageLog(client, wire=lambda name: f"{namespace}%{name}", cluster="one")
    mirror = RocketMQOffsetMirror(client, gateway, lambda name: f"{namespace}%{name}")
    assert log.committed(filled, "spark") == {}

    log.commit(filled, "spark", {"local:0": 7, "local:3": 500})
    log.commit(filled, "spark", {"local:0": 5})

    assert log.committed(filled, "spark") == {"local:0": 5, "local:3": 500}
    assert await mirror.read("spark", filled, ["local:0", "local:3"]) == {"local:0": 5, "local:3": 500}


async def test_only_user_topics_are_listed(
    rocketmq: Stack, log: RocketMQLog, topic: str, client: RocketMQClient, namespace
) -> None:
    """`subscribePattern` must not match system topics, retry topics or other namespaces."""
    plain = f"plain-{namespace}"
    await client.admin.put_topic(BROKER, plain, 1)
    await client.admin.put_topic(BROKER, f"{namespace}%mqgate_retry_x", 1)
    await client.admin.put_topic(BROKER, f"%RETRY%{namespace}%x", 1)
    without = RocketMQLog(rocketmq.name_server)

    everything = without.topics()

    without.close()
    assert log.topics() == [topic]
    assert plain in everything
    system = {"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "local", "one"}
    assert not [name for name in everything if "%" in name or name in system or name.lower().startswith("rmq_sys")]
    await client.admin.delete_topic(plain, [BROKER])


@pytest.mark.parametrize(
    "ask",
    [
        lambda log, topic: log.ends(topic),
        lambda log, topic: log.offsets_at(topic, 0),
        lambda log, topic: log.committed(topic, "group"),
        lambda log, topic: log.commit(topic, "group", {"local:0": 1}),
        lambda log, topic: rows(log.read(topic, "local:0", 0, 10, ["body"])),
    ],
    ids=["ends", "offsets_at", "committed", "commit", "read"],
)
async def test_a_missing_topic_is_reported(log: RocketMQLog, client: RocketMQClient, namespace: str, ask) -> None:
    """It never existed, or was deleted while its registration remained."""
    await client.admin.put_kv("ORDER_TOPIC_CONFIG", f"{namespace}%dropped", "local:4")

    with pytest.raises(TopicMissing, match="nowhere"):
        ask(log, "nowhere")
    with pytest.raises(TopicMissing, match="dropped"):
        ask(log, "dropped")
    await client.admin.delete_kv("ORDER_TOPIC_CONFIG", f"{namespace}%dropped")


@pytest.mark.parametrize("queue", ["local:99", "local", ":1", "local:x"])
async def test_a_missing_queue_is_reported(log: RocketMQLog, topic: str, queue: str) -> None:
    """`assign` may name a queue that does not exist."""
    with pytest.raises(TopicMissing, match="queue"):
        rows(log.read(topic, queue, 0, 10, ["body"]))


async def test_an_unreadable_topic_is_reported(log: RocketMQLog, client: RocketMQClient, namespace: str) -> None:
    """Otherwise the query would wait for messages forever."""
    await client.admin.put_topic(BROKER, f"{namespace}%closed", 2, perm=2)

    with pytest.raises(AccessDenied, match="permission"):
        log.ends("closed")
    with pytest.raises(AccessDenied, match="permission"):
        rows(log.read("closed", "local:0", 0, 10, ["body"]))


def test_a_missing_name_server_is_reported() -> None:
    """The error states what to check."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        log = RocketMQLog(f"127.0.0.1:{taken.getsockname()[1]}", retries=1)

        with pytest.raises(LogUnavailable, match="nameServers"):
            log.ends("orders")
        with pytest.raises(LogUnavailable, match="nameServers"):
            rows(log.read("orders", "local:0", 0, 10, ["body"]))
        log.close()


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_broker_that_is_down_is_not_skipped(
    pair: Stack, client: RocketMQClient, namespace: str, *, is_registered: bool
) -> None:
    """A route names only running brokers, so its messages would be skipped silently."""
    wire = f"{namespace}%spread"
    for broker in ("broker-a", "broker-b"):
        await client.admin.put_topic(broker, wire, 2)
        await client.messages.send_batch(broker, wire, 0, [(b"x", {"UNIQ_KEY": "1"})] * 40)
    if is_registered:
        await client.admin.put_kv("ORDER_TOPIC_CONFIG", wire, "broker-a:2;broker-b:2")
    old = RocketMQLog(pair.name_server, namespace=namespace, retries=1)
    queues = ["broker-a:0", "broker-a:1", "broker-b:0", "broker-b:1"]
    assert list(old.ends("spread")) == queues

    pair.kill("broker-a")

    # Later readers cannot know of queues that were never registered.
    fresh = RocketMQLog(pair.name_server, namespace=namespace, retries=1)
    for log in (old, fresh) if is_registered else (old,):
        with pytest.raises(LogUnavailable, match=r"Start the broker"):
            log.ends("spread")
        with pytest.raises(LogUnavailable, match=r"Start the broker"):
            rows(log.read("spread", "broker-a:0", 0, 40, ["offset"]))
        assert len(rows(log.read("spread", "broker-b:0", 0, 40, ["offset"]))) == 40
    pair.start("broker-a")
    patient = RocketMQLog(pair.name_server, namespace=namespace, retries=8)
    assert list(patient.ends("spread")) == queues
    assert len(rows(patient.read("spread", "broker-a:0", 0, 40, ["offset"]))) == 40
    for log in (old, fresh, patient):
        log.close()
    if is_registered:
        await client.admin.delete_kv("ORDER_TOPIC_CONFIG", wire)


async def test_a_read_survives_the_restart_of_a_broker(pair: Stack, client: RocketMQClient, namespace: str) -> None:
    """A task continues at its offset instead of failing its job."""
    wire = f"{namespace}%long"
    await client.admin.put_topic("broker-a", wire, 1)
    for _ in range(100):
        await client.messages.send_batch("broker-a", wire, 0, [(b"x", {"UNIQ_KEY": "1"})] * 200)
    log = RocketMQLog(pair.name_server, namespace=namespace, retries=20)
    batches = log.read("long", "broker-a:0", 0, 20_000, ["offset"])
    found = rows(iter([next(batches)]))

    pair.kill("broker-a")
    pair.start("broker-a")

    found += rows(batches)
    log.close()
    assert [row["offset"] for row in found] == list(range(20_000))


async def test_a_read_may_be_abandoned(log: RocketMQLog, filled: str) -> None:
    """After a limit or a failed task, the log can still be used."""
    for _ in range(5):
        batches = log.read(filled, "local:0", 0, 500, ["offset"])
        next(batches)
        batches.close()

    assert len(rows(log.read(filled, "local:0", 0, 500, ["offset"]))) == 500


async def test_a_closed_log_opens_again(log: RocketMQLog, filled: str) -> None:
    """A worker keeps one log for its lifetime, and any caller may close it."""
    assert len(log.ends(filled)) == QUEUES
    log.close()
    log.close()

    assert len(log.ends(filled)) == QUEUES


_FORKING = """
import os, sys
from mqgate.spark.rocketmq_log import RocketMQLog
log = RocketMQLog(sys.argv[1], namespace=sys.argv[2])
count = lambda: sum(batch.num_rows for batch in log.read(sys.argv[3], "local:1", 0, 500, ["body"]))
assert count() == 500
child = os.fork()
assert count() == 500
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert count() == 500
    # Left open, and in the middle of a read: the process must end all the same.
    batches = log.read(sys.argv[3], "local:1", 0, 500, ["body"])
    next(batches)
    print("both")
"""


def test_a_forked_child_opens_its_own_connections(rocketmq: Stack, filled: str, namespace: str) -> None:
    """The PySpark daemon forks workers, which must not share a connection."""
    command = [sys.executable, "-c", _FORKING, rocketmq.name_server, namespace, filled]

    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - our own

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "both\n", "")
