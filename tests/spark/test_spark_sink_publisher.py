"""Publishing from a task with failures between it and the gateway. Spark is not needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from sink_calls import Way, stored, way_to

from mqgate.client import Client
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing
from mqgate.spark.options import OptionInvalid
from mqgate.spark.publisher import Counts, Publisher
from mqgate.spark.sink_options import parse_sink
from mqgate.spark.sink_rows import Row, RowRefused, rows
from mqgate.testing.server_process import ServerProcess

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def way(gateway: ServerProcess) -> Iterator[Way]:
    with way_to(gateway.url) as way:
        yield way


def publisher(url: str, topic: str, **options: str) -> Publisher:
    return Publisher(parse_sink({"url": url, "topic": topic, "retryTimeout": "20s", **options}, is_stream=False))


def numbered(count: int, **columns: list[Any]) -> list[Row]:
    """Return rows with one message key, so that their order is the order in the queue."""
    batch = pa.record_batch({"body": [str(number) for number in range(count)], "key": ["same"] * count, **columns})
    return list(rows([batch], uuid4().hex))


def bodies(client: Client, topic: str) -> list[int]:
    return [int(message["body"]) for message in stored(client, topic)]


def test_rows_are_stored_in_order_and_counted(gateway: ServerProcess, client: Client, topic: str) -> None:
    """A commit reports the counts, and a repeat is counted as a duplicate."""
    given = numbered(20)
    sink = publisher(gateway.url, topic)

    first, again = sink.publish(given), sink.publish(given)

    assert (first, again) == (Counts(stored=20), Counts(duplicates=20))
    assert bodies(client, topic) == list(range(20))


@pytest.mark.parametrize("trouble", ["busy", "cut", "lost"])
def test_rows_without_a_response_are_sent_again(trouble: str, way: Way, client: Client, topic: str) -> None:
    """No message is lost or duplicated, whether or not the gateway stored it."""
    way.troubles = [trouble, "lost"]

    counts = publisher(way.url, topic).publish(numbered(10))

    assert counts.stored + counts.duplicates == 10
    assert bodies(client, topic) == list(range(10))


def test_the_next_gateway_takes_over(way: Way, client: Client, topic: str) -> None:
    """The failure of one gateway is not an error, and the working one is used for the next rows."""
    sink = publisher(f"{NOBODY}, {way.url}", topic)

    sink.check()
    sink.publish(numbered(5))

    assert bodies(client, topic) == list(range(5))
    assert len(way.passed) == 2


def test_a_gateway_that_stays_down_fails_the_task(topic: str) -> None:
    """The task fails after the configured time, and the error names the address."""
    with pytest.raises(LogUnavailable, match=f"option url: no request to {NOBODY} succeeded"):
        publisher(NOBODY, topic, retryTimeout="300ms").publish(numbered(1))


def test_the_rate_of_a_producer_slows_the_task_down(way: Way, client: Client, topic: str) -> None:
    """Rows above the rate wait as requested, in order, and only they are sent again."""
    producer = f"producer-{uuid4().hex}"
    client.producers.put(producer, {"topic": topic, "rateLimit": {"rate": 100, "burst": 100}})
    # Slower than one second's worth; less than two are waited for, because progress renews the patience.
    sink = publisher(way.url, topic, producer=producer, retryTimeout="1500ms")

    counts = sink.publish(numbered(250))

    assert counts == Counts(stored=250)
    assert bodies(client, topic) == list(range(250))
    assert [content.count(b'"body"') for content in way.passed][:2] == [250, 150]


def test_a_rejected_row_is_reported(gateway: ServerProcess, client: Client, topic: str) -> None:
    """The error names the row and the column, and the valid rows are stored."""
    tags = ["good", "", "good"]

    with pytest.raises(RowRefused, match=r"row 1 of its partition, column tag: .*empty.* \(invalid_value\)"):
        publisher(gateway.url, topic).publish(numbered(3, tag=tags))

    assert bodies(client, topic) == [0, 2]


def test_one_idempotency_key_for_two_bodies_is_rejected(gateway: ServerProcess, topic: str) -> None:
    """A key of the user that is not unique must not lose a row silently."""
    with pytest.raises(RowRefused, match=r"row 1 .*column idempotencyKey.*\(idempotency_mismatch\)"):
        publisher(gateway.url, topic).publish(numbered(2, idempotencyKey=["k", "k"]))


def test_lower_limits_of_a_gateway_are_respected(tmp_path: Path) -> None:
    """An operator may allow smaller requests, so requests are split in order."""
    server = ServerProcess(tmp_path, MQGATE_HTTP_MAX_BATCH="7", MQGATE_HTTP_MAX_REQUEST_BYTES="1000").start()
    try:
        with Client(server.url) as client:
            client.topics.put("small", {"queues": 1})

            counts = publisher(server.url, "small").publish(numbered(40))

            assert counts == Counts(stored=40)
            assert bodies(client, "small") == list(range(40))
    finally:
        server.stop()


class TestChecksBeforeAnyTask:
    def test_the_check_of_an_existing_topic_passes(self, gateway: ServerProcess, client: Client, topic: str) -> None:
        """The check stores nothing."""
        publisher(gateway.url, topic).check()

        assert stored(client, topic) == []

    def test_a_missing_topic_is_reported(self, gateway: ServerProcess) -> None:
        """A write must not create a misspelt topic."""
        with pytest.raises(TopicMissing, match=r"option topic: .*nowhere"):
            publisher(gateway.url, "nowhere").check()

    def test_a_missing_producer_is_reported(self, gateway: ServerProcess, topic: str) -> None:
        """Producers must be registered."""
        with pytest.raises(TopicMissing, match="option producer: "):
            publisher(gateway.url, topic, producer="nobody").check()

    def test_a_gateway_that_is_down_is_reported(self, topic: str) -> None:
        """The driver does not wait as long as a task."""
        with pytest.raises(LogUnavailable, match=f"option url: .*{NOBODY}"):
            publisher(NOBODY, topic, retryTimeout="200ms").check()

    @pytest.mark.parametrize(("url", "key"), [("gateway:8080", "k"), ("http://127.0.0.1:9", "cut\n")])
    def test_an_invalid_address_or_key_is_rejected(self, url: str, key: str, topic: str) -> None:
        """The error occurs before any request is sent."""
        with pytest.raises(OptionInvalid, match="options url and key: "):
            publisher(url, topic, key=key)

    def test_a_server_that_is_not_a_gateway_is_reported(self, way: Way, topic: str) -> None:
        """A page that returns 200 for everything must not discard rows."""
        way.troubles = ["page"] * 2
        sink = publisher(way.url, topic)

        with pytest.raises(LogError, match=r"option url: .*is not a gateway"):
            sink.check()
        with pytest.raises(LogError, match=r"option url: .*check the URL of the gateway"):
            sink.publish(numbered(1))


def test_the_key_must_have_permission_to_publish(tmp_path: Path) -> None:
    """A producer key is sufficient. Other, expired or missing keys are rejected on the driver."""
    server = ServerProcess(tmp_path).start()
    try:
        with Client(server.url) as client:
            for name in ("mine", "other"):
                client.topics.put(name, {"queues": 1})
                client.producers.put(name, {"topic": name})
            admin = client.keys.create({"role": "admin"})["key"]
        with Client(server.url, admin) as client:
            keys = {name: client.keys.create({"producer": name}) for name in ("mine", "other")}
            gone = client.keys.create({"producer": "mine"})
            client.keys.delete(gone["id"])

            publisher(server.url, "mine", key=keys["mine"]["key"]).check()
            publisher(server.url, "mine", key=admin).check()

            with pytest.raises(AccessDenied, match="option key: the key may not publish to mine"):
                publisher(server.url, "mine", key=keys["other"]["key"]).check()
            with pytest.raises(AccessDenied, match=r"option key: .*missing, mistyped or expired"):
                publisher(server.url, "mine", key=gone["key"]).check()
            with pytest.raises(LogError, match=r"option key: .*missing, mistyped or expired"):
                publisher(server.url, "mine").check()
    finally:
        server.stop()
