"""Columns that SQLite puts together: what would confuse them, and that rows keep their order."""

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
async def test_marks_within_a_text_are_part_of_it(
    log: SqliteMessageLog, text: str, others: list[str | None], member: str
) -> None:
    """Publishing refuses them; should one ever be stored, no value may slip into another row or become null."""
    drafts = [a_draft(f"{number}") for number in range(len(others) + 1)]
    wanted = [text, *(draft.id if member == "id" else other for draft, other in zip(drafts, others, strict=False))]
    drafts = [draft._replace(**{member: value}) for draft, value in zip(drafts, wanted, strict=True)]
    await log.append("orders", drafts)

    page = await log.read_columns("orders", "local:0", 0, 10, 1 << 20, COLUMNS)

    assert page[member].to_pylist() == wanted
    assert page["body"].to_pylist() == [draft.body for draft in drafts]
    assert page["offset"].to_pylist() == list(range(len(drafts)))


async def test_properties_with_marks_are_told_apart(log: SqliteMessageLog) -> None:
    """JSON writes them with a backslash, so they are no marks to anybody."""
    properties = [{"a": "\x01\x02,null"}, {}, {"\x02": "\x01"}]
    await log.append("orders", [a_draft(properties=values) for values in properties])

    page = await log.read_columns("orders", "local:0", 0, 10, 1 << 20, ["properties", "propertiesJson"])

    assert [dict(found or {}) for found in page["properties"].to_pylist()] == properties
    assert [json.loads(text or "{}") for text in page["propertiesJson"].to_pylist()] == properties


async def test_a_page_whose_first_message_is_gone_is_empty(log: SqliteMessageLog, engine: Engine) -> None:
    """Retention may pass between two pages: a reader must notice, and never get later messages for earlier ones."""
    await log.append("orders", [a_draft(f"{number}") for number in range(5)])
    await engine.write(lambda transaction: transaction.execute("DELETE FROM message WHERE position & 0xff < 2"))

    gone = await log.read_columns("orders", "local:0", 1, 10, 1 << 20, ["offset"])
    kept = await log.read_columns("orders", "local:0", 2, 10, 1 << 20, ["offset"])

    assert gone.num_rows == 0
    assert kept["offset"].to_pylist() == [2, 3, 4]


async def test_a_topic_dropped_while_it_is_read_is_told(
    log: SqliteMessageLog, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty page would pass for the end of the queue, also when the loop hears of the drop only after the page."""
    await log.append("orders", [a_draft(f"{number}") for number in range(5)])
    may_tell = threading.Event()
    deliver, step = threads._deliver, engine.step

    def deliver_late(*letters: Any) -> None:
        if threading.current_thread().name == "mqgate-writer":
            may_tell.wait(10)
        deliver(*letters)

    def step_and_tell(job: Any) -> Any:
        may_tell.set()
        return step(job)

    monkeypatch.setattr(threads, "_deliver", deliver_late)
    monkeypatch.setattr(engine, "step", step_and_tell)
    dropped = asyncio.create_task(log.drop("orders"))
    await asyncio.sleep(0)
    while await engine.read(lambda view: view.one("SELECT count(*) FROM message")[0]):
        pass

    with pytest.raises(TopicNotFound):
        await log.read_columns("orders", "local:0", 2, 10, 1 << 20, ["offset"])

    may_tell.set()
    await dropped


@pytest.mark.parametrize("large", ["body", "key", "tag", "properties"])
async def test_a_page_that_grows_behind_its_beginning_is_cut(log: SqliteMessageLog, large: str) -> None:
    """The first messages tell how large a page will be, and may mislead: memory is bounded all the same."""
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
    """Values are put together in the order of the visit, so that an index would mix up the rows of a page."""
    columns = ("id", "key", "tag", "properties", "body", "storedAt")
    statements = [build(names) for build in (_statement, _sizes) for names in (columns, ("id",), ("key",), ())]

    connection = apsw.Connection(str(engine.path))
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {statement}", (0, 9)).fetchall() for statement in statements]
    connection.close()

    assert {plan[0][3] for plan in plans} == {"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}
    assert {len(plan) for plan in plans} == {1}


async def test_an_offset_at_the_end_of_all_numbers_is_no_other_queues_beginning(log: SqliteMessageLog) -> None:
    """Positions of neighbouring queues follow each other."""
    await log.create("orders", 2)
    await log.append("orders", [a_draft(queue=1)])

    page = await log.read_columns("orders", "local:0", (1 << 40) - 1, 10, 1 << 20, ["offset"])

    assert page.num_rows == 0
