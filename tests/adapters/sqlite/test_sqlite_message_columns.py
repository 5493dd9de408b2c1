"""Columns that SQLite concatenates: texts with separators, the order of rows, and limits."""

import asyncio
import json
import threading
from typing import Any

import apsw
import pytest

from mqgate.adapters.sqlite import threads
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_columns import _sizes, _statement
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.core.errors import TopicNotFound
from mqgate.ports.message_columns import COLUMNS
from mqgate.testing.samples import a_draft


@pytest.fixture
async def log(engine: Engine) -> SqliteMessageLog:
    log = SqliteMessageLog(engine)
    await log.load()
    await log.create("orders", 1)
    return log


@pytest.mark.parametrize("text", ["\x01", "\x02", "\x01\x02", "a\x02b", "\x02\x01\x02", "\x00", "a\x00b", "\x00\x02"])
@pytest.mark.parametrize("others", [[None], ["k"], [None, "k"]])
@pytest.mark.parametrize("member", ["key", "tag", "id"])
async def test_a_text_with_separators_is_read_unchanged(
    log: SqliteMessageLog, text: str, others: list[str | None], member: str
) -> None:
    """The API rejects such texts. If one is stored nevertheless, no value may move to another row or become null."""
    drafts = [a_draft(f"{number}") for number in range(len(others) + 1)]
    wanted = [text, *(draft.id if member == "id" else other for draft, other in zip(drafts, others, strict=False))]
    drafts = [draft._replace(**{member: value}) for draft, value in zip(drafts, wanted, strict=True)]
    await log.append("orders", drafts)

    page = await log.read_columns("orders", "local:0", 0, 10, 1 << 20, COLUMNS)

    assert page[member].to_pylist() == wanted
    assert page["body"].to_pylist() == [draft.body for draft in drafts]
    assert page["offset"].to_pylist() == list(range(len(drafts)))


async def test_properties_with_separators_are_read_unchanged(log: SqliteMessageLog) -> None:
    """JSON contains control characters only in escaped form."""
    properties = [{"a": "\x01\x02,null"}, {}, {"\x02": "\x01"}]
    await log.append("orders", [a_draft(properties=each) for each in properties])

    page = await log.read_columns("orders", "local:0", 0, 10, 1 << 20, ["properties", "propertiesJson"])

    assert [dict(each or {}) for each in page["properties"].to_pylist()] == properties
    assert [json.loads(each or "{}") for each in page["propertiesJson"].to_pylist()] == properties


async def test_a_page_whose_first_message_is_gone_is_empty(log: SqliteMessageLog, engine: Engine) -> None:
    """Retention may run between two pages. A reader must not get later messages in place of deleted ones."""
    await log.append("orders", [a_draft(f"{number}") for number in range(5)])
    await engine.write(lambda transaction: transaction.execute("DELETE FROM message WHERE position & 0xff < 2"))

    gone = await log.read_columns("orders", "local:0", 1, 10, 1 << 20, ["offset"])
    kept = await log.read_columns("orders", "local:0", 2, 10, 1 << 20, ["offset"])

    assert gone.num_rows == 0
    assert kept["offset"].to_pylist() == [2, 3, 4]


async def test_a_topic_that_is_dropped_during_a_read_is_reported(
    log: SqliteMessageLog, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty page would mean the end of the queue, even if the page arrives before the result of the drop."""
    await log.append("orders", [a_draft(f"{number}") for number in range(5)])
    may_deliver = threading.Event()
    deliver, step = threads._deliver, engine.step

    def deliver_late(*arguments: Any) -> None:
        if threading.current_thread().name == "mqgate-writer":
            may_deliver.wait(10)
        deliver(*arguments)

    def step_and_deliver(job: Any) -> Any:
        may_deliver.set()
        return step(job)

    monkeypatch.setattr(threads, "_deliver", deliver_late)
    monkeypatch.setattr(engine, "step", step_and_deliver)
    dropped = asyncio.create_task(log.drop("orders"))
    await asyncio.sleep(0)
    while await engine.read(lambda view: view.one("SELECT count(*) FROM message")[0]):
        pass

    with pytest.raises(TopicNotFound):
        await log.read_columns("orders", "local:0", 2, 10, 1 << 20, ["offset"])

    may_deliver.set()
    await dropped


@pytest.mark.parametrize("large", ["body", "key", "tag", "properties"])
async def test_a_page_with_larger_later_messages_is_limited(log: SqliteMessageLog, large: str) -> None:
    """The first messages of a page do not show how large the later ones are. The limit must hold for all."""
    text = "x" * 20_000
    values = {"body": text.encode(), "properties": {"p": text}}
    drafts = [a_draft("y") for _ in range(100)] + [
        a_draft("z")._replace(**{large: values.get(large, text)}) for _ in range(100)
    ]
    await log.append("orders", drafts)

    rows: list[Any] = []
    while len(rows) < 200:
        page = await log.read_columns("orders", "local:0", len(rows), 200, 100_000, ["id", large])
        assert page.num_rows
        assert page.nbytes < 120_000
        rows += page.to_pylist()

    assert [row["id"] for row in rows] == [draft.id for draft in drafts]
    assert [row[large] for row in rows[100:]] == [
        [("p", text)] if large == "properties" else values.get(large, text)
    ] * 100


async def test_rows_are_visited_by_their_positions(log: SqliteMessageLog, engine: Engine) -> None:
    """Values are concatenated in the order of the visit, which another index would change."""
    columns = ("id", "key", "tag", "properties", "body", "storedAt")
    statements = [build(each) for build in (_statement, _sizes) for each in (columns, ("id",), ("key",), ())]

    connection = apsw.Connection(str(engine.path))
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {each}", (0, 9)).fetchall() for each in statements]
    connection.close()

    assert {plan[0][3] for plan in plans} == {"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}
    assert {len(plan) for plan in plans} == {1}


async def test_the_largest_offset_does_not_reach_into_the_next_queue(log: SqliteMessageLog) -> None:
    """The positions of consecutive queues are adjacent."""
    await log.create("orders", 2)
    await log.append("orders", [a_draft(queue=1)])

    page = await log.read_columns("orders", "local:0", (1 << 40) - 1, 10, 1 << 20, ["offset"])

    assert page.num_rows == 0
