"""Bulk reads of a queue as an Arrow stream: content, errors and resource limits."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest
from asgi_calls import ARROW, Call
from native_calls import publish, put, refused

from mqgate import bootstrap
from mqgate.http.native import bulk_read
from mqgate.http.native.bulk_read import BulkReadRequest, BulkReads

URL = "/v1/topics/orders/queues/local:0/messages"
AS_ARROW = {"Accept": ARROW}
KIB = 1 << 10


async def read(api: httpx.AsyncClient, query: str = "") -> pa.Table:
    response = await api.get(f"{URL}?{query}", headers=AS_ARROW)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    assert response.content.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    return pa.ipc.open_stream(response.content).read_all()


async def publish_many(api: httpx.AsyncClient, count: int, size: int = 10) -> None:
    for start in range(0, count, 250):
        batch = [{"body": f"{number:0{size}}"} for number in range(start, min(start + 250, count))]
        response = await api.post("/v1/topics/orders/messages", json={"messages": batch})
        assert response.status_code == 200, response.text


async def counted(api: httpx.AsyncClient) -> dict[str, int]:
    """Return the counted bulk reads by status, and the number of other requests in progress."""
    text = (await api.get("/metrics")).text
    found = re.findall(r'mqgate_requests_total\{operation="readQueue",status="(\d+)"\} (\d+)', text)
    (in_flight,) = re.findall(r"mqgate_requests_in_flight (\d+)", text)
    return {status: int(number) for status, number in found} | {"in flight": int(in_flight) - 1}


async def test_a_queue_is_read_as_columns(shop: httpx.AsyncClient) -> None:
    """The columns contain the same messages as JSON, with types for Spark and DuckDB."""
    stored = await publish(shop, "a", "b", key="k", tag="t", properties={"p": "v"})

    table = await read(shop)

    assert table.column_names == ["id", "topic", "queue", "offset", "key", "tag", "properties", "body", "storedAt"]
    first, second = table.to_pylist()
    at = first.pop("storedAt")
    assert at.isoformat(timespec="milliseconds").replace("+00:00", "Z") == stored[0]["storedAt"]
    assert first == {
        "id": stored[0]["id"],
        "topic": "orders",
        "queue": "local:0",
        "offset": 0,
        "key": "k",
        "tag": "t",
        "properties": [("p", "v")],
        "body": b"a",
    }
    assert (second["offset"], second["body"]) == (1, b"b")


async def test_a_client_chooses_columns_and_range(shop: httpx.AsyncClient) -> None:
    """A client that needs bodies only does not pay for the rest."""
    await publish_many(shop, 10)

    table = await read(shop, "offset=3&max=4&columns=propertiesJson,offset")

    assert table.to_pydict() == {"propertiesJson": [None] * 4, "offset": [3, 4, 5, 6]}


@pytest.mark.parametrize("query", ["offset=10", "offset=1099511627775", "offset=12&columns=body"])
async def test_a_read_beyond_the_end_is_an_empty_stream(shop: httpx.AsyncClient, query: str) -> None:
    """The stream has a schema and an end mark, because this is no error."""
    await publish_many(shop, 10)

    assert (await read(shop, query)).num_rows == 0


async def test_a_range_deleted_by_retention_is_an_empty_stream(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway, clock: Any
) -> None:
    """Later messages never replace missing ones. The client detects the loss by offsets."""
    await put(shop, "topics/orders", retention=60)
    await publish(shop, "old")
    clock.advance(61)
    await publish(shop, "new")
    assert gateway.retention is not None
    await gateway.retention.run_once()

    assert (await read(shop)).num_rows == 0
    assert (await read(shop, "offset=1"))["body"].to_pylist() == [b"new"]


async def test_many_pages_are_one_stream(shop: httpx.AsyncClient) -> None:
    """Rows are in order without gaps, in batches of bounded size."""
    await publish_many(shop, 9_000)

    response = await shop.get(URL, headers=AS_ARROW)

    batches = list(pa.ipc.open_stream(response.content))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(9_000))
    assert len(batches) > 1


async def test_large_bodies_make_small_batches(shop: httpx.AsyncClient) -> None:
    """Batches are bounded by bytes and by rows, and a body larger than a page is still returned."""
    await publish(shop, *("x" * 700 * KIB for _ in range(6)), "y" * 3_000 * KIB, "z")

    response = await shop.get(URL, headers=AS_ARROW)

    sizes = [[len(body) // KIB for body in batch["body"].to_pylist()] for batch in pa.ipc.open_stream(response.content)]
    assert [size for batch in sizes for size in batch] == [700] * 6 + [3_000, 0]
    assert all(len(batch) == 1 or sum(batch) <= 2_048 for batch in sizes)


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ("columns=colour", 400, "invalid_value", "columns"),
        ("columns=", 400, "invalid_value", "columns"),
        ("columns=id,,body", 400, "invalid_value", "columns"),
        ("columns=id,id", 400, "invalid_value", "columns"),
        ("columns=ID", 400, "invalid_value", "columns"),
        ("max=0", 400, "invalid_value", "max"),
        ("max=1000001", 400, "invalid_value", "max"),
        ("max=x", 400, "invalid_value", "max"),
        ("offset=-1", 400, "invalid_value", "offset"),
        ("colour=red", 400, "unknown_field", "colour"),
    ],
)
async def test_an_invalid_bulk_read_returns_a_problem_document(
    shop: httpx.AsyncClient, query: str, status: int, code: str, field: str
) -> None:
    """The error is returned before the stream begins."""
    refused(await shop.get(f"{URL}?{query}", headers=AS_ARROW), status, code, field=field)


async def test_a_bulk_read_of_a_missing_queue_is_refused(shop: httpx.AsyncClient) -> None:
    """A typo must not return an empty stream, and refused reads release their slots."""
    for _ in range(6):
        unknown_queue = await shop.get("/v1/topics/orders/queues/local:7/messages", headers=AS_ARROW)
        unknown_topic = await shop.get("/v1/topics/nowhere/queues/local:0/messages", headers=AS_ARROW)

        refused(unknown_queue, 404, "queue_not_found")
        refused(unknown_topic, 404, "topic_not_found")


async def test_an_unavailable_media_type_is_406(shop: httpx.AsyncClient) -> None:
    """Columns can be chosen for Arrow only, because JSON always has all members."""
    other = await shop.get(URL, headers={"Accept": "text/csv"})
    columns = await shop.get(f"{URL}?columns=id", headers={"Accept": "application/json"})

    refused(other, 406, "not_acceptable")
    refused(columns, 400, "invalid_value", field="columns")


async def test_the_bulk_read_limit_applies(open_api: Callable[..., Any]) -> None:
    """It also applies without an explicit maximum."""
    api = await open_api(max_bulk_messages=5)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 8)

    assert (await read(api)).num_rows == 5
    assert (await read(api, "max=5&offset=4")).num_rows == 4
    refused(await api.get(f"{URL}?max=6", headers=AS_ARROW), 400, "invalid_value", field="max", limit=5)


async def test_a_head_request_releases_its_slot(open_api: Callable[..., Any]) -> None:
    """No piece of the body is ever read, so the stream must be closed."""
    api = await open_api(max_bulk_reads=1)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 10)

    responses = [await api.head(URL, headers=AS_ARROW) for _ in range(3)]

    assert {(response.status_code, response.headers["content-type"], response.content) for response in responses} == {
        (200, ARROW, b"")
    }
    assert (await read(api)).num_rows == 10


async def test_a_disconnect_releases_the_slot(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """Pages are not read for a disconnected client, and another read can start."""
    await publish_many(shop, 400, 20 * KIB)

    for _ in range(10):
        call = Call(gateway.app, URL)
        call.before_piece = lambda number, call=call: call.hang_up() if number == 3 else None
        await call.run()
        assert (len(call.pieces), len(call.lost)) == (3, 1)
        assert not call.is_whole

    assert await counted(shop) == {"200": 10, "in flight": 0}
    assert (await read(shop)).num_rows == 400


async def test_a_failure_during_a_stream_leaves_it_unfinished(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """A terminated response would make a part look complete."""
    await shop.delete("/v1/groups/workers")
    await publish_many(shop, 1_000, 20 * KIB)
    call = Call(gateway.app, URL)

    async def drop() -> None:
        assert (await shop.delete("/v1/topics/orders")).is_success

    call.before_piece = lambda number: drop() if number == 3 else None
    await call.run()

    assert len(call.pieces) > 3
    assert not call.is_whole
    assert await counted(shop) == {"404": 1, "in flight": 0}


async def test_an_exception_during_a_stream_is_logged_and_aborts_it(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """The status 200 was sent already, so metrics show the failure instead."""
    await publish_many(shop, 1_000, 20 * KIB)
    log: Any = gateway.dispatcher._log
    read_columns = log.read_columns

    async def read_once(topic: str, queue: str, offset: int, *rest: Any) -> Any:
        if offset:
            raise ZeroDivisionError
        return await read_columns(topic, queue, offset, *rest)

    log.read_columns = read_once
    call = await Call(gateway.app, URL).run()

    assert call.sent[0]["status"] == 200
    assert not call.is_whole
    assert await counted(shop) == {"500": 1, "in flight": 0}


async def test_a_client_that_stops_reading_is_disconnected(open_api: Callable[..., Any]) -> None:
    """Otherwise four stalled clients would block all other bulk reads."""
    api = await open_api(stall_timeout=timedelta(seconds=0.05), max_bulk_reads=1)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 400, 20 * KIB)
    for number in (0, 1, 3):
        call = Call(api._transport.app, URL)
        asleep = asyncio.Event()
        call.before_piece = lambda at, number=number, asleep=asleep: asleep.wait() if at == number else None

        await call.run()

        assert len(call.pieces) == number
        assert not call.is_whole
    assert await counted(api) == {"408": 3, "in flight": 0}


async def test_reads_beyond_the_limit_wait_and_then_get_503(
    open_api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait of a few seconds is acceptable. More would accumulate."""
    monkeypatch.setattr(bulk_read, "_MAX_WAIT", 0.05)
    api = await open_api(max_bulk_reads=1)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 10)
    call = Call(api._transport.app, URL)
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        has_begun.set()
        await may_go_on.wait()

    call.before_piece = lambda number: pause() if number == 1 else None
    first = asyncio.create_task(call.run())
    await has_begun.wait()

    refused(await api.get(URL, headers=AS_ARROW), 503, "overloaded")
    monkeypatch.setattr(bulk_read, "_MAX_WAIT", 60.0)
    waiting = asyncio.create_task(read(api))
    await asyncio.sleep(0)
    may_go_on.set()

    assert (await waiting).num_rows == 10
    assert (await first).is_whole


async def test_at_most_one_page_is_built_ahead(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """Memory use does not depend on the requested range."""
    await publish_many(shop, 1_000, 20 * KIB)
    log: Any = gateway.dispatcher._log
    read_columns, pages = log.read_columns, []

    async def noted(*wish: Any) -> Any:
        pages.append(await read_columns(*wish))
        return pages[-1]

    log.read_columns = noted
    stream = await BulkReads(log, 1).open(BulkReadRequest("orders", "local:0", 0, 1_000, ["body"]))

    for sent in range(1, 5):
        assert stream._next_page is not None
        await asyncio.wait((stream._next_page,))
        assert len(pages) == sent + 1
        while stream._pieces:
            await anext(stream)
        assert len(pages) == sent + 1
        await anext(stream)
    await stream.aclose()

    assert sum(page.num_rows for page in pages) < 1_000
    assert max(page.nbytes for page in pages) < 3 << 20


async def test_a_stalled_stream_does_not_block_publishing(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """A stream holds no lock, transaction or thread between two pieces."""
    await publish_many(shop, 1_000, 20 * KIB)
    call = Call(gateway.app, f"{URL}?max=1000000&columns=offset,body")
    published = []

    async def publish_one() -> None:
        published.extend(await publish(shop, "meanwhile"))

    call.before_piece = lambda number: publish_one() if number in {1, 5, 9} else None
    await call.run()

    assert call.is_whole
    table = pa.ipc.open_stream(b"".join(call.pieces)).read_all()
    assert table["offset"].to_pylist() == list(range(1_003))
    assert [message["offset"] for message in published] == [1_000, 1_001, 1_002]
