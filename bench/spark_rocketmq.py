"""Direct reads of a Spark executor from a broker, compared with the Apache Java client on the same queues.

    python bench/spark_rocketmq.py                                      the table
    python bench/spark_rocketmq.py NAME_SERVER TOPIC QUEUES COLUMNS     a reader: everything once for every line sent
    python bench/spark_rocketmq.py OPTIONS                              the same by Spark, all columns

All are warm and take turns at the same broker. This project uses two processes with two queues each, like two cores of
an executor; the Java client uses one process with a thread for each of the four queues.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import on_rocketmq
import processes
import pyarrow.compute as pc
import uvloop
from processes import Child, cpu_seconds, tree_cpu

from mqgate.rocketmq import RocketMQClient
from mqgate.spark.log import FIELDS
from mqgate.spark.rocketmq_log import RocketMQLog
from mqgate.spark.session import session
from mqgate.stack import BrokerSpec, Stack

MESSAGES = 300_000
BODY_BYTES = 256
QUEUES = 4
ROUNDS = 5
TOPIC = "bench"
GROUP = "bench-java"
BROKER = "broker-a"
# The first passes measure compilers.
WARM_UP = 2
# The broker and the client may use the second compiler stage.
_JAVA = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
_WAYS = {
    "ours, all columns": list(FIELDS),
    "ours, without properties": [name for name in FIELDS if name != "properties"],
    "ours, offset and body": ["offset", "body"],
}
Found = dict[str, Any]


def compare(table_type: Any) -> None:
    """Write the table; for run.py."""
    table = table_type(
        "spark_rocketmq",
        f"Reading a broker directly: {MESSAGES:,} messages of {BODY_BYTES} bytes, {QUEUES} queues, default limits",
        ("what", "messages/s", "ratio to Java", "ratio by CPU", "reader CPU us per message", "broker CPU"),
    )
    with _stack() as stack, ExitStack() as children:
        uvloop.run(_fill(stack.name_server))
        directory = Path(tempfile.mkdtemp(prefix="mqgate-bench-"))
        ways = {
            "Apache's Java client, 4 threads": [
                processes.java("DirectPull", directory, stack.name_server, TOPIC, GROUP)
            ]
        }
        for title, columns in _WAYS.items():
            ways[title] = [_ours(stack.name_server, index, columns, directory) for index in range(2)]
        gateway = on_rocketmq.gateway(stack.name_server)
        children.callback(gateway.stop)
        processes.register(gateway, f"topics/{TOPIC}", queues=QUEUES)
        direct = {"transport": "rocketmq", "nameServers": stack.name_server}
        for title, options in {
            "Spark, transport rocketmq": direct,
            "Spark, transport http": {"url": gateway.url},
        }.items():
            ways[title] = [_spark(options, directory)]
        for readers in ways.values():
            for each in readers:
                children.callback(each.stop)
        for _ in range(WARM_UP):
            for readers in ways.values():
                _pass(readers, stack)
        rounds = [{title: _pass(readers, stack) for title, readers in ways.items()} for _ in range(ROUNDS)]
    java = next(iter(ways))
    for title in ways:
        rate, reader, broker = (
            statistics.median(each[title][what] for each in rounds) for what in ("rate", "reader", "broker")
        )
        ratio = statistics.median(each[title]["rate"] / each[java]["rate"] for each in rounds)
        by_cpu = statistics.median(_cost(each[java]) / _cost(each[title]) for each in rounds)
        table.add(title, f"{rate:,.0f}", ratio, by_cpu, reader, broker)
    table.write()


def _cost(found: Found) -> float:
    """Return the CPU time per message, of reader and broker together."""
    return float(found["reader"] + found["broker"])


@contextmanager
def _stack() -> Iterator[Stack]:
    built = Stack(
        Path(tempfile.mkdtemp(prefix="mqgate-bench-stack-")), progress=lambda text: print(text, file=sys.stderr)
    )
    try:
        built.up([BrokerSpec(name=BROKER, java_options=_JAVA)])
        yield built
    finally:
        built.down()


def _ours(server: str, index: int, columns: list[str], directory: Path) -> Child:
    queues = ",".join(f"{BROKER}:{queue_id}" for queue_id in range(QUEUES) if queue_id % 2 == index)
    command = [sys.executable, __file__, server, TOPIC, queues, ",".join(columns)]
    return Child(command, directory / "ours.log")


def _spark(options: dict[str, str], directory: Path) -> Child:
    return Child([sys.executable, __file__, json.dumps(options | {"subscribe": TOPIC})], directory / "spark.log")


def _pass(readers: list[Child], stack: Stack) -> Found:
    """Read all messages once, each queue by one of the readers."""
    broker = cpu_seconds(stack.part(BROKER).pid)
    began = time.perf_counter()
    for each in readers:
        each.begin()
    found = [each.result() for each in readers]
    seconds = time.perf_counter() - began
    messages = sum(each["messages"] for each in found)
    if messages != MESSAGES or sum(each["bytes"] for each in found) != MESSAGES * BODY_BYTES:
        raise RuntimeError(f"not every message was read once: {found}")
    return {
        "rate": messages / seconds,
        "reader": sum(each["cpu"] for each in found) / messages * 1e6,
        "broker": (cpu_seconds(stack.part(BROKER).pid) - broker) / messages * 1e6,
    }


async def _fill(server: str) -> None:
    client = RocketMQClient([server])
    await client.routes.brokers()
    await client.admin.put_topic(BROKER, TOPIC, QUEUES)
    await client.admin.put_group(BROKER, GROUP)

    async def fill(queue_id: int) -> None:
        for start in range(0, MESSAGES // QUEUES, 100):
            messages = [(_body(), _properties(start + index)) for index in range(100)]
            await client.messages.send_batch(BROKER, TOPIC, queue_id, messages)

    await asyncio.gather(*(fill(queue_id) for queue_id in range(QUEUES)))
    await client.close()


def _body() -> bytes:
    return uuid.uuid4().bytes * (BODY_BYTES // 16)


def _properties(number: int) -> dict[str, str]:
    return {
        "UNIQ_KEY": uuid.uuid4().hex.upper(),
        "KEYS": f"order-{number}",
        "TAGS": "created",
        "region": "eu",
        "source": "shop",
    }


def read_by_spark(options: dict[str, str]) -> None:
    """Read all messages once for every line of standard input."""
    spark = session("bench", "local[2]")
    rows = spark.read.format("mqgate").options(**options).load()
    for _ in sys.stdin:
        cpu = tree_cpu(os.getpid())
        (found,) = rows.selectExpr("count(*) AS messages", "sum(length(body)) AS bytes").collect()
        print(json.dumps(found.asDict() | {"cpu": tree_cpu(os.getpid()) - cpu}), flush=True)


def read(server: str, topic: str, queues: list[str], columns: list[str]) -> None:
    log = RocketMQLog(server)
    for _ in sys.stdin:
        ends = log.ends(topic)
        messages = length = 0
        began, cpu = time.perf_counter(), time.process_time()
        for queue in queues:
            for batch in log.read(topic, queue, *ends[queue], columns):
                messages += batch.num_rows
                length += pc.sum(pc.binary_length(batch.column("body"))).as_py()
        spent = time.process_time() - cpu
        found = {"messages": messages, "bytes": length, "seconds": time.perf_counter() - began, "cpu": spent}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        read_by_spark(json.loads(sys.argv[1]))
    elif len(sys.argv) > 1:
        read(sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4].split(","))
    else:
        from run import Table

        compare(Table)
