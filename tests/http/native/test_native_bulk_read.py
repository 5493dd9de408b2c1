"""A queue as an Arrow stream: what is in it, what it refuses, and what it never does to the gateway."""

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
from mqgate.http.native.bulk_read import BulkReads, Wish

URL = "/v1/topics/orders/queues/local:0/messages"
AS_ARROW = {"Accept": ARROW}
KIB = 1 << 10


async def read(api: httpx.AsyncClient, query: str = "") -> pa.Table:
    answer = await api.get(f"{URL}?{query}", headers=AS_ARROW)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    assert answer.content.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    return pa.ipc.open_stream(answer.content).read_all()


async def publish_many(api: httpx.AsyncClient, count: int, size: int = 10) -> None:
    for start in range(0, count, 500):
        batch = [{"body": f"{number:0{size}}"} for number in range(start, min(start + 500, count))]
        answer = await api.post("/v1/topics/orders/messages", json={"messages": batch})
        assert answer.status_code == 200, answer.text


async def counted(api: httpx.AsyncClient) -> dict[str, int]:
    """How many bulk reads were counted, by status; and how many requests are being worked on, this one left out."""
    text = (await api.get("/metrics")).text
    found = re.findall(r'mqgate_requests_total\{operation="readQueue",status="(\d+)"\} (\d+)', text)
    (in_flight,) = re.findall(r"mqgate_requests_in_flight (\d+)", text)
    return {status: int(number) for status, number in found} | {"in flight": int(in_flight) - 1}


async def test_a_queue_is_read_as_columns(shop: httpx.AsyncClient) -> None:
    """The same messages that JSON shows, typed, ready for Spark and DuckDB."""
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


async def test_columns_and_range_are_the_readers_choice(shop: httpx.AsyncClient) -> None:
    """A reader of bodies pays for bodies."""
    await publish_many(shop, 10)

    table = await read(shop, "offset=3&max=4&columns=propertiesJson,offset")

    assert table.to_pydict() == {"propertiesJson": [None] * 4, "offset": [3, 4, 5, 6]}


@pytest.mark.parametrize("query", ["offset=10", "offset=1099511627775", "offset=12&columns=body"])
async def test_beyond_the_end_is_an_empty_stream(shop: httpx.AsyncClient, query: str) -> None:
    """With its schema and its end: nothing to read is no error."""
    await publish_many(shop, 10)

    assert (await read(shop, query)).num_rows == 0


async def test_what_retention_took_is_an_empty_stream(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway, clock: Any
) -> None:
    """The reader compares offsets and knows what it lost; later messages never stand in for earlier ones."""
    await put(shop, "topics/orders", retention=60)
    await publish(shop, "old")
    clock.advance(61)
    await publish(shop, "new")
    assert gateway.retention is not None
    await gateway.retention.run_once()

    assert (await read(shop)).num_rows == 0
    assert (await read(shop, "offset=1"))["body"].to_pylist() == [b"new"]


async def test_many_pages_are_one_stream(shop: httpx.AsyncClient) -> None:
    """In order, without a gap, in batches that a reader can hold."""
    await publish_many(shop, 9_000)

    answer = await shop.get(URL, headers=AS_ARROW)

    batches = list(pa.ipc.open_stream(answer.content))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(9_000))
    assert len(batches) > 1


async def test_large_bodies_make_small_batches(shop: httpx.AsyncClient) -> None:
    """Memory is bounded by bytes as much as by rows; and a body larger than a page still comes."""
    await publish(shop, *("x" * 700 * KIB for _ in range(6)), "y" * 3_000 * KIB, "z")

    answer = await shop.get(URL, headers=AS_ARROW)

    sizes = [[len(body) // KIB for body in batch["body"].to_pylist()] for batch in pa.ipc.open_stream(answer.content)]
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
async def test_a_bad_wish_is_refused_as_ever(
    shop: httpx.AsyncClient, query: str, status: int, code: str, field: str
) -> None:
    """A problem document, before any stream begins."""
    refused(await shop.get(f"{URL}?{query}", headers=AS_ARROW), status, code, field=field)


async def test_what_is_not_there_is_refused_as_ever(shop: httpx.AsyncClient) -> None:
    """Never an empty stream for a typo; and a refusal takes nobody's place, however often."""
    for _ in range(6):
        unknown_queue = await shop.get("/v1/topics/orders/queues/local:7/messages", headers=AS_ARROW)
        unknown_topic = await shop.get("/v1/topics/nowhere/queues/local:0/messages", headers=AS_ARROW)

        refused(unknown_queue, 404, "queue_not_found")
        refused(unknown_topic, 404, "topic_not_found")


async def test_a_form_that_there_is_not_is_406(shop: httpx.AsyncClient) -> None:
    """And columns are of Arrow: JSON has all members, always."""
    other = await shop.get(URL, headers={"Accept": "text/csv"})
    columns = await shop.get(f"{URL}?columns=id", headers={"Accept": "application/json"})

    refused(other, 406, "not_acceptable")
    refused(columns, 400, "invalid_value", field="columns")


async def test_the_operators_limit_holds(open_api: Callable[..., Any]) -> None:
    """Also for who does not say how many."""
    api = await open_api(max_bulk_messages=5)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 8)

    assert (await read(api)).num_rows == 5
    assert (await read(api, "max=5&offset=4")).num_rows == 4
    refused(await api.get(f"{URL}?max=6", headers=AS_ARROW), 400, "invalid_value", field="max", limit=5)


async def test_head_tells_the_type_and_holds_nothing(open_api: Callable[..., Any]) -> None:
    """HEAD is GET without the body: nobody will ever take the pieces, so none may wait to be taken."""
    api = await open_api(max_bulk_reads=1)
    await put(api, "topics/orders", queues=1)
    await publish_many(api, 10)

    answers = [await api.head(URL, headers=AS_ARROW) for _ in range(3)]

    assert {(each.status_code, each.headers["content-type"], each.content) for each in answers} == {(200, ARROW, b"")}
    assert (await read(api)).num_rows == 10


async def test_who_hangs_up_frees_everything(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """Nobody reads for a client that is gone, and its place is another's at once."""
    await publish_many(shop, 400, 20 * KIB)

    for _ in range(10):
        call = Call(gateway.app, URL)
        call.before_piece = lambda number, call=call: call.hang_up() if number == 3 else None
        await call.run()
        assert (len(call.pieces), len(call.lost)) == (3, 1)
        assert not call.is_whole

    assert await counted(shop) == {"200": 10, "in flight": 0}
    assert (await read(shop)).num_rows == 400


async def test_a_failure_in_mid_stream_leaves_it_unfinished(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """The server closes such a connection; had the answer an end, a part would pass for the whole."""
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


async def test_a_bug_in_mid_stream_is_logged_and_cuts(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """A 200 that was said cannot be taken back; what counts is how it ended."""
    await publish_many(shop, 1_000, 20 * KIB)
    log: Any = gateway.mover._log
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


async def test_who_takes_nothing_is_cut_off(open_api: Callable[..., Any]) -> None:
    """Else four clients that fell asleep would keep everybody else from reading."""
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


async def test_reads_beyond_the_limit_wait_then_are_told_to_come_back(
    open_api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few seconds are worth waiting for; more would pile up."""
    monkeypatch.setattr(bulk_read, "_PATIENCE", 0.05)
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
    monkeypatch.setattr(bulk_read, "_PATIENCE", 60.0)
    waiting = asyncio.create_task(read(api))
    await asyncio.sleep(0)
    may_go_on.set()

    assert (await waiting).num_rows == 10
    assert (await first).is_whole


async def test_a_slow_reader_has_one_page_built_ahead_and_no_more(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Memory does not depend on how much was asked for."""
    await publish_many(shop, 1_000, 20 * KIB)
    log: Any = gateway.mover._log
    read_columns, pages = log.read_columns, []

    async def noted(*wish: Any) -> Any:
        pages.append(await read_columns(*wish))
        return pages[-1]

    log.read_columns = noted
    stream = await BulkReads(log, 1).open(Wish("orders", "local:0", 0, 1_000, ["body"]))

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


async def test_publishing_goes_on_beside_a_stream_that_waits(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Between two pieces nothing of the store is held: no lock, no reading transaction, no thread."""
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
    assert [each["offset"] for each in published] == [1_000, 1_001, 1_002]
