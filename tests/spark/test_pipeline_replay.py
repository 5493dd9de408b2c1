"""Replay to another topic: in order, within the rate, and never twice."""

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_calls import fill, frame

from mqgate.client import Client
from mqgate.spark.pipelines import archive
from mqgate.spark.pipelines import replay as replaying
from mqgate.spark.pipelines.config import PipelineConfig
from mqgate.spark.pipelines.replay import Replay, chosen, count, replay


@pytest.fixture
def config(client: Client, tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(url=client.url, directory=tmp_path)


@pytest.fixture
def target(client: Client, topic: str) -> str:
    name = f"{topic}-again"
    client.topics.put(name, {"queues": 4})
    return name


def copies(spark: SparkSession, client: Client, target: str) -> list[int]:
    return sorted(int(bytes(row.body)) for row in frame(spark, client, subscribe=target).collect())


def test_a_replay_that_was_interrupted_goes_on_where_it_was(
    spark: SparkSession, client: Client, topic: str, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it broke off between sending and writing down that it had: the same request stores nothing twice.

    Nor does it replay what it has stored itself, when it is into the topic that it reads.
    """
    fill(client, topic, 40)
    wanted = Replay(name="once", source=topic, topic=topic, rate=1000.0)
    stored, left = replaying._store_progress, [2]

    def break_off(*given: object) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        stored(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(replaying, "_store_progress", break_off)
    with pytest.raises(KeyboardInterrupt):
        replay(spark, config, wanted)
    monkeypatch.undo()

    sent = replay(spark, config, wanted)

    assert 0 < sent < 40
    assert copies(spark, client, topic) == sorted(2 * list(range(40)))
    assert replay(spark, config, wanted) == 0


def test_a_replayed_message_is_unchanged(
    spark: SparkSession, client: Client, topic: str, target: str, config: PipelineConfig
) -> None:
    """It keeps its id, key, tag and properties."""
    (first, _) = fill(client, topic, 2, tag="paid", properties={"a": "b"})

    replay(spark, config, Replay(name="one", source=topic, topic=target, where="CAST(body AS STRING) = '0'"))

    (row,) = frame(spark, client, subscribe=target).collect()
    assert (row.id, row.key, row.tag, row.properties) == (first, "k0", "paid", {"a": "b"})


def test_a_replay_for_one_group_reaches_no_other_group(
    spark: SparkSession, client: Client, topic: str, config: PipelineConfig
) -> None:
    """The other groups have already settled the messages."""
    ids = fill(client, topic, 3)
    for name in ("again", "done"):
        client.groups.put(f"{topic}-{name}", {"topic": topic, "start": "latest"})

    replay(spark, config, Replay(name="three", source=topic, group=f"{topic}-again"))

    got = client.receive(f"{topic}-again", max=10)["messages"]
    assert sorted(message["id"] for message in got) == sorted(ids)
    assert client.receive(f"{topic}-done", max=10)["messages"] == []


def test_the_archive_is_replayed_like_the_log(
    spark: SparkSession, client: Client, topic: str, target: str, config: PipelineConfig
) -> None:
    """An archive is needed after retention. A dry run reports what would be sent."""
    fill(client, topic, 10)
    archive.write_batch(frame(spark, client, subscribe=topic), config.archive_path, "run-0")
    wanted = Replay(name="old", source=topic, topic=target, is_archived=True)

    counts = count(chosen(spark, config, wanted))
    replay(spark, config, wanted)

    assert sum(row["messages"] for row in counts) == 10
    assert copies(spark, client, target) == list(range(10))


def test_an_archive_is_replayed_in_offset_order(
    spark: SparkSession,
    client: Client,
    topic: str,
    target: str,
    config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The progress implies that all earlier offsets are done, so another order would skip messages."""
    for name, start in (("run-1", 0), ("run-0", 10)):
        fill(client, topic, 10, start=start)
        rows = frame(spark, client, subscribe=topic).where(f"CAST(CAST(body AS STRING) AS INT) >= {start}")
        archive.write_batch(rows, config.archive_path, name)
    stored, places = replaying._store_progress, list[dict[str, int]]()

    def noted(progress: Path, wanted: Replay, done: dict[str, int], ends: dict[str, int]) -> None:
        places.append(dict(done))
        stored(progress, wanted, done, ends)

    monkeypatch.setattr(replaying, "_store_progress", noted)
    replay(spark, config, Replay(name="order", source=topic, topic=target, is_archived=True, rate=10.0**6))

    assert copies(spark, client, target) == list(range(20))
    assert all(before.get(queue, 0) <= after[queue] for before, after in pairwise(places) for queue in after)


def test_the_name_of_another_replay_is_rejected(
    spark: SparkSession, client: Client, topic: str, target: str, config: PipelineConfig
) -> None:
    """Its progress would be applied to this replay and skip messages."""
    fill(client, topic, 1)
    replay(spark, config, Replay(name="x", source=topic, topic=target))

    with pytest.raises(ValueError, match="choose another --name"):
        replay(spark, config, Replay(name="x", source=topic, topic=target, where="offset > 3"))


def test_an_empty_archive_is_an_error(spark: SparkSession, config: PipelineConfig) -> None:
    """A replay of nothing would look like success."""
    with pytest.raises(FileNotFoundError, match="has no messages of orders"):
        chosen(spark, config, Replay(name="x", source="orders", topic="t", is_archived=True))


def test_a_low_rate_is_even() -> None:
    """A request of 500 messages every few minutes would not be a steady rate."""
    assert [replaying._size(rate) for rate in (None, 1.0, 100.0, 1e6)] == [500, 1, 10, 500]
