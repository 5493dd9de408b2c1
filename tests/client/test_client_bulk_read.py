"""Bulk reads of a queue through the client, over real connections."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import run
from uuid import uuid4

import pyarrow as pa
import pytest

from mqgate.client import Client, GatewayError, GatewayUnreachable

ARROW = "application/vnd.apache.arrow.stream"
KIB = 1 << 10
MESSAGES = 300


@pytest.fixture
def large(client: Client) -> str:
    """Create a topic whose queue exceeds the socket buffers and the page size of the gateway."""
    topic = f"large-{uuid4().hex}"
    client.topics.put(topic, {"queues": 1})
    for _ in range(MESSAGES // 10):
        client.publish_batch(topic, [{"body": "x" * 128 * KIB}] * 10)
    return topic


def whole() -> bytes:
    """Return a stream of three batches in the format of the gateway."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("offset", pa.int64())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in (0, 2, 4):
            writer.write_batch(pa.record_batch([pa.array([start, start + 1])], schema=schema))
    return sink.getvalue().to_pybytes()


def test_a_queue_is_read_in_batches(client: Client, names: tuple[str, str, str]) -> None:
    """The batches have the requested range and columns, in order."""
    topic, producer, _ = names
    client.publish_batch(topic, [{"body": f"{number}", "key": "k"} for number in range(10)], producer=producer)

    some = pa.Table.from_batches(client.read_queue(topic, "local:0", 2, 5, ["body", "offset"]))
    rest = pa.Table.from_batches(client.read_queue(topic, "local:0", 7, 1_000))
    none = list(client.read_queue(topic, "local:0", 10, 5))

    assert some.to_pydict() == {"body": [b"2", b"3", b"4", b"5", b"6"], "offset": [2, 3, 4, 5, 6]}
    assert rest["key"].to_pylist() == ["k"] * 3
    assert none == []


def test_a_large_queue_is_read_completely(client: Client, large: str) -> None:
    """The response is chunked and takes many reads of the socket."""
    batches = list(client.read_queue(large, "local:0", 0, MESSAGES))

    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(MESSAGES))
    assert {len(body) for batch in batches for body in batch["body"].to_pylist()} == {128 * KIB}


def test_a_closed_iterator_frees_its_bulk_read(client: Client, large: str) -> None:
    """The number of concurrent bulk reads is limited, so a leaked one would block later reads."""
    for _ in range(6):
        reading = client.read_queue(large, "local:0", 0, MESSAGES)
        assert next(reading).num_rows > 0
        reading.close()

    assert sum(batch.num_rows for batch in client.read_queue(large, "local:0", 0, MESSAGES)) == MESSAGES


def test_an_interrupted_stream_is_an_error(client: Client, large: str) -> None:
    """The topic is deleted during the read; a partial result must not look complete."""
    reading = client.read_queue(large, "local:0", 0, MESSAGES)
    read = next(reading).num_rows
    client.topics.delete(large)

    with pytest.raises(GatewayUnreachable):
        read += sum(batch.num_rows for batch in reading)

    assert 0 < read < MESSAGES


@pytest.fixture(params=["direct", "proxied"])
def far_client(request: pytest.FixtureRequest, peer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Return a client of the prepared server, directly or through it as a proxy."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "proxied":
        monkeypatch.setenv("http_proxy", peer.url)
    url = peer.url if request.param == "direct" else "http://gateway.example"
    with Client(url, "the-key", timeout=timedelta(seconds=5)) as client:
        yield client


def test_a_bulk_read_sends_key_accept_header_and_query(peer, far_client: Client) -> None:
    """A bulk read uses another HTTP client, which must send the same headers."""
    peer.will_answer(200, whole(), Content_Type=ARROW)

    list(far_client.read_queue("t", "local:0", 3, 4, ["id", "body"]))

    ((method, target, headers, _),) = peer.requests
    headers = {name.lower(): value for name, value in headers.items()}
    assert method == "GET"
    assert target.endswith("/v1/topics/t/queues/local%3A0/messages?offset=3&max=4&columns=id%2Cbody")
    assert (headers["accept"], headers["authorization"]) == (ARROW, "Bearer the-key")
    assert headers["user-agent"] == "mqgate-client"


def test_a_stream_that_is_cut_anywhere_is_an_error(peer, far_client: Client) -> None:
    """A proxy may end a failed response so that HTTP looks complete."""
    stream = whole()
    for wrong in (*(stream[:cut] for cut in range(len(stream))), stream + b"x"):
        peer.will_answer(200, wrong, Content_Type=ARROW)
        with pytest.raises(GatewayUnreachable):
            list(far_client.read_queue("t", "local:0", 0, 6))
    peer.will_answer(200, stream, Content_Type=ARROW)

    batches = list(far_client.read_queue("t", "local:0", 0, 6))

    assert [batch["offset"].to_pylist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]


def test_a_lost_connection_is_an_error(peer, far_client: Client) -> None:
    """The body is shorter than announced, or missing."""
    stream = whole()
    peer.will_answer(200, stream[:-20], Content_Type=ARROW, Content_Length=str(len(stream)), Connection="close")
    peer.will_hang_up()

    for _ in range(2):
        with pytest.raises(GatewayUnreachable):
            list(far_client.read_queue("t", "local:0", 0, 6))


def test_a_closed_port_is_unreachable() -> None:
    """Bulk reads raise the same error as other calls."""
    with Client("http://127.0.0.1:1") as client, pytest.raises(GatewayUnreachable, match=r"127\.0\.0\.1:1"):
        list(client.read_queue("t", "local:0", 0, 6))


def test_a_refused_bulk_read_raises_the_error_of_the_gateway(client: Client, names: tuple[str, str, str]) -> None:
    """Programs use the code, as for any other call."""
    topic, _, _ = names

    for queue, most, columns, code in (
        ("local:9", 1, None, "queue_not_found"),
        ("local:0", 0, None, "invalid_value"),
        ("local:0", 1, ["colour"], "invalid_value"),
    ):
        with pytest.raises(GatewayError) as refused:
            list(client.read_queue(topic, queue, 0, most, columns))
        assert refused.value.code == code


def test_a_response_other_than_arrow_is_an_error(peer, far_client: Client) -> None:
    """A page of a proxy must not be read as an empty queue."""
    peer.will_answer(200, b"<html>", Content_Type="text/html")
    peer.will_answer(503, b'{"code":"overloaded","detail":"later","retryable":true}', Retry_After="7")

    refusals = []
    for _ in range(2):
        with pytest.raises(GatewayError) as refused:
            list(far_client.read_queue("t", "local:0", 0, 6))
        refusals.append(refused.value)

    assert [each.code for each in refusals] == ["unexpected_answer", "overloaded"]
    assert (refusals[1].status, refusals[1].retryable, refusals[1].retry_after) == (503, True, timedelta(seconds=7))


def test_queues_are_listed_with_times_or_an_instant(client: Client) -> None:
    """Expensive members can be omitted, and an instant is converted to an offset of every queue."""
    topic = f"topic-{uuid4().hex}"
    client.topics.put(topic, {"queues": 3})
    client.publish(topic, "a", key="k")

    plain = client.queues(topic)
    quick = client.queues(topic, times=False)
    soon = client.queues(topic, at=datetime.now(UTC) + timedelta(days=1))
    past = client.queues(topic, at=datetime.now(UTC) - timedelta(days=1), times=False)

    assert [each["queue"] for each in plain] == ["local:0", "local:1", "local:2"]
    assert [each["firstStoredAt"] is None for each in plain].count(False) == 1
    assert {each["firstStoredAt"] for each in quick} == {None}
    assert [each["offsetAt"] for each in soon] == [each["max"] for each in plain]
    assert [each["offsetAt"] for each in past] == [0, 0, 0]


def test_queues_are_collected_from_all_pages(peer) -> None:
    """Callers need all queues, not one page."""
    peer.will_answer(200, b'{"items":[{"queue":"a:0"}],"next":"a:0"}')
    peer.will_answer(200, b'{"items":[{"queue":"b:0"}],"next":null}')

    with Client(peer.url, retry_for=0) as client:
        found = client.queues("t")

    assert [each["queue"] for each in found] == ["a:0", "b:0"]
    assert "cursor=a%3A0" in peer.requests[1][1]


def test_the_client_does_not_load_arrow_before_it_is_needed(tmp_path: Path) -> None:
    """Arrow takes 0.1 s and 37 MiB, which a shell command does not need."""
    program = "import sys, mqgate.client; sys.exit('pyarrow' in sys.modules)"

    assert run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == 0  # noqa: S603 - our own interpreter
