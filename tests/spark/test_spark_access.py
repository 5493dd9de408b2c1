"""Keys of a gateway that asks for them: who may read, and what a key that may not is told."""

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
    """A gateway of its own, with an administrator key."""
    server = ServerProcess(tmp_path_factory.mktemp("locked")).start()
    with Client(server.url) as first:
        key = first.transport.call("POST", "/v1/keys", {"role": "admin"})["key"]
    with Client(server.url, key) as admin:
        admin.topics.put("orders", {"queues": 1})
        admin.producers.put("shop", {"topic": "orders"})
        yield admin
    server.stop()


def ask(gateway: Client, key: str | None) -> None:
    """What a query asks first."""
    with closing(HttpLog([gateway.transport.url], key=key, timeout=10, retries=0)) as log:
        log.ends("orders")


def test_no_key_is_told_which_option_to_set(locked: Client) -> None:
    """The driver's error names the option, not a status."""
    with pytest.raises(AccessDenied, match="option key"):
        ask(locked, None)


def test_a_producers_key_may_not_read(locked: Client) -> None:
    """It publishes; reading a topic is an administrator's."""
    key = locked.transport.call("POST", "/v1/keys", {"producer": "shop"})["key"]

    with pytest.raises(AccessDenied, match="administrator key"):
        ask(locked, key)


def test_an_expired_key_is_refused(locked: Client) -> None:
    """A job that ran yesterday and fails today is told why, in the driver."""
    expires_at = datetime.now(UTC) + timedelta(seconds=1)
    key = locked.transport.call("POST", "/v1/keys", {"role": "admin", "expiresAt": expires_at})["key"]
    with Client(locked.transport.url, key) as holder:

        def is_expired() -> bool:
            try:
                holder.info()
            except GatewayError:
                return True
            return False

        until(is_expired)

    with pytest.raises(AccessDenied, match="option key"):
        ask(locked, key)


def test_the_next_gateway_is_asked_where_one_is_down(gateway: ServerProcess, client: Client, topic: str) -> None:
    """`url` may name several, and which one answers does not matter."""
    client.publish(topic, "hello")

    with closing(HttpLog(["http://127.0.0.1:1", gateway.url], key=None, timeout=10, retries=1)) as both:
        (queue,) = [name for name, ends in both.ends(topic).items() if ends.max]
        rows = [batch.num_rows for batch in both.read(topic, queue, 0, 1, ["body"])]

    assert rows == [1]


@pytest.mark.slow
def test_a_gateway_that_serves_others_is_waited_for(tmp_path: Path) -> None:
    """More tasks than bulk reads at once are no failure, whatever `retries` says."""
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


def test_gateways_that_are_all_down_are_told_after_the_retries() -> None:
    """The error names the option and the address."""
    with (
        closing(HttpLog(["http://127.0.0.1:1"], key=None, timeout=10, retries=1)) as nobody,
        pytest.raises(LogUnavailable, match=r"option url: no response from http://127.0.0.1:1"),
    ):
        nobody.topics()
