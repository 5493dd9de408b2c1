"""The same queries on RocketMQ: through a gateway, and directly from the brokers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from spark_calls import bodies, drained, fill

from mqgate.client import Client
from mqgate.stack import Stack
from mqgate.testing.server_process import ServerProcess


@pytest.fixture(scope="module")
def namespace() -> str:
    return f"ns{uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def client(rocketmq: Stack, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a gateway whose messages are stored on the broker `local`."""
    directory = tmp_path_factory.mktemp("gateway")
    config = directory / "mqgate.toml"
    config.write_text(
        f'[messages]\nengine = "rocketmq"\n[rocketmq]\nname_servers = ["{rocketmq.name_server}"]\n'
        f'cluster = "one"\nnamespace = "{namespace}"\n'
    )
    server = ServerProcess(directory / "data", "--config", str(config)).start()
    with Client(server.url) as client:
        yield client
    server.stop()


@pytest.fixture(params=["http", "rocketmq"])
def transport(request: pytest.FixtureRequest, rocketmq: Stack, client: Client, namespace: str) -> dict[str, Any]:
    """Return the options of a transport."""
    if request.param == "http":
        return {"url": client.url}
    return {"transport": "rocketmq", "nameServers": rocketmq.name_server, "namespace": namespace}


def test_a_batch_read_returns_the_published_messages(
    spark: SparkSession, client: Client, topic: str, transport: dict[str, Any]
) -> None:
    """Every column is the same with both transports."""
    published = client.publish(topic, b"\xff\x00", key="k", tag="t", properties={"a": "1", "b": "ü"})
    fill(client, topic, 100)

    rows = spark.read.format("mqgate").options(subscribe=topic, **transport).load()
    (row,) = rows.where("tag = 't'").collect()

    assert rows.count() == 101
    assert row.asDict() | {"storedAt": None} == {
        "id": published["id"],
        "topic": topic,
        "queue": published["queue"],
        "offset": published["offset"],
        "key": "k",
        "tag": "t",
        "properties": {"a": "1", "b": "ü"},
        "body": bytearray(b"\xff\x00"),
        "storedAt": None,
    }


def test_a_stream_continues_from_its_checkpoint(
    spark: SparkSession, client: Client, topic: str, transport: dict[str, Any], tmp_path: Path
) -> None:
    """It also reads queues that were added meanwhile, in batches up to the limit."""
    rows = (
        spark.readStream.format("mqgate")
        .options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30, **transport)
        .load()
    )
    fill(client, topic, 40)
    first = drained(rows, tmp_path)
    client.topics.put(topic, {"queues": 8})
    fill(client, topic, 40, start=40)

    second = drained(rows, tmp_path)

    assert all(len(batch) <= 30 for batch in first + second)
    assert bodies(first) == list(range(40))
    assert bodies(second) == list(range(40, 80))


def test_a_checkpoint_works_with_both_transports(
    spark: SparkSession, client: Client, topic: str, rocketmq: Stack, namespace: str, tmp_path: Path
) -> None:
    """Positions are the same, so a job can switch between them."""
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    through = spark.readStream.format("mqgate").options(url=client.url, **options).load()
    direct = (
        spark.readStream.format("mqgate")
        .options(transport="rocketmq", nameServers=rocketmq.name_server, namespace=namespace, **options)
        .load()
    )
    fill(client, topic, 20)
    first = drained(through, tmp_path)
    fill(client, topic, 20, start=20)

    second = drained(direct, tmp_path)

    assert bodies(first) == list(range(20))
    assert bodies(second) == list(range(20, 40))


def test_the_sink_writes_to_rocketmq(spark: SparkSession, client: Client, topic: str) -> None:
    """A repeated write with the same name is stored once."""
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS body", "concat('k', id) AS key")
    for _ in range(2):
        options = {"url": client.url, "topic": topic, "writeId": f"write-{topic}"}
        rows.write.format("mqgate").options(**options).mode("append").save()

    found = spark.read.format("mqgate").options(url=client.url, subscribe=topic).load()

    assert sorted(int(bytes(row.body)) for row in found.collect()) == list(range(50))
