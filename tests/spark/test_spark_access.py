"""A gateway with API keys: which keys may read, and the errors for the others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from spark_calls import until

from mqgate.client import Client, GatewayError
from mqgate.spark.http_log import HttpLog
from mqgate.spark.log import AccessDenied, LogUnavailable
from mqgate.testing.server_process import ServerProcess


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a separate gateway with an administrator key."""
    server = ServerProcess(tmp_path_factory.mktemp("locked")).start()
    with Client(server.url) as first:
        key = first.keys.create({"role": "admin"})["key"]
    with Client(server.url, key) as admin:
        admin.topics.put("orders", {"queues": 1})
        admin.producers.put("shop", {"topic": "orders"})
        yield admin
    server.stop()


def ask(gateway: Client, key: str | None) -> None:
    """What a query asks first."""
    with closing(HttpLog([gateway.url], key=key, timeout=10, retries=0)) as log:
        log.ends("orders")


def test_a_missing_key_is_reported_with_its_option(locked: Client) -> None:
    """The error on the driver names the option, not an HTTP status."""
    with pytest.raises(AccessDenied, match="option key"):
        ask(locked, None)


def test_a_producer_key_may_not_read(locked: Client) -> None:
    """Reading a topic requires an administrator key."""
    key = locked.keys.create({"producer": "shop"})["key"]

    with pytest.raises(AccessDenied, match="administrator key"):
        ask(locked, key)


def test_an_expired_key_is_rejected(locked: Client) -> None:
    """The driver reports why a job that ran yesterday fails today."""
    expires_at = datetime.now(UTC) + timedelta(seconds=1)
    key = locked.keys.create({"role": "admin", "expiresAt": expires_at})["key"]
    with Client(locked.url, key) as holder:

        def is_expired() -> bool:
            try:
                holder.info()
            except GatewayError:
                return True
            return False

        until(is_expired)

    with pytest.raises(AccessDenied, match="option key"):
        ask(locked, key)


def test_the_next_gateway_is_used_if_one_is_down(gateway: ServerProcess, client: Client, topic: str) -> None:
    """`url` may name several equivalent gateways."""
    client.publish(topic, "hello")

    with closing(HttpLog(["http://127.0.0.1:1", gateway.url], key=None, timeout=10, retries=1)) as both:
        (queue,) = [name for name, ends in both.ends(topic).items() if ends.max]
        rows = [batch.num_rows for batch in both.read(topic, queue, 0, 1, ["body"])]

    assert rows == [1]


@pytest.mark.slow
def test_an_overloaded_gateway_is_retried(tmp_path: Path) -> None:
    """More tasks than concurrent bulk reads must not fail, whatever `retries` is."""
    server = ServerProcess(tmp_path, MQGATE_HTTP_MAX_BULK_READS="1").start()
    try:
        with Client(server.url) as client, ThreadPoolExecutor() as pool:
            client.topics.put("orders", {"queues": 1})
            for _ in range(8):
                client.publish_batch("orders", [{"body": "x" * 2_000}] * 1_000)
            first = client.read_queue("orders", "local:0", 0, 8_000)
            next(first)

            with closing(HttpLog([server.url], key=None, timeout=30, retries=0)) as log:
                second = pool.submit(
                    lambda: sum(batch.num_rows for batch in log.read("orders", "local:0", 0, 8_000, ["id"]))
                )
                with pytest.raises(TimeoutError):
                    second.result(4)
                rest = sum(batch.num_rows for batch in first)

                assert 0 < rest < 8_000
                assert second.result(60) == 8_000
    finally:
        server.stop()


def test_an_outage_of_all_gateways_is_reported_after_the_retries() -> None:
    """The error names the option and the address."""
    with (
        closing(HttpLog(["http://127.0.0.1:1"], key=None, timeout=10, retries=1)) as nobody,
        pytest.raises(LogUnavailable, match=r"option url: no response from http://127.0.0.1:1"),
    ):
        nobody.topics()
