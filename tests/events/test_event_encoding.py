"""Encoded rows decode to the same rows, in the schema of core/events.py."""

import os

import pyarrow as pa
import pytest

from event_log import rows_of
from mqgate.core.events import EVENTS, TABLES, Table
from mqgate.events.encoding import encode
from mqgate.events.rows import Part

NOW = 1_700_000_000_000
VALUES = {
    "text": ["01ab", None, "ünï"],
    "word": ["t", "t", None],
    "int": [1 << 40, None, -1],
    "instant": [NOW, None, 0],
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_rows_of_every_table_survive_the_round_trip(table: Table) -> None:
    """Readers rely on the names and order of columns, on values and on nulls."""
    columns = {name: VALUES[kind] for name, kind in table.columns}

    (batch,) = encode(table, [Part([1] * 3, columns)])

    assert (batch.table, batch.rows) == (table, 3)
    assert [list(row) for row in rows_of(batch.body)] == [[name for name, _ in table.columns]] * 3
    assert [list(row.values()) for row in rows_of(batch.body)] == [
        list(row) for row in zip(*columns.values(), strict=True)
    ]


def test_values_of_a_run_apply_to_all_of_its_rows() -> None:
    """Parts are concatenated, and a column that a part lacks is null."""
    runs = {"at": [NOW, NOW + 1], "kind": "published", "topic": ["a", "b"], "count": 1, "group": [None, "g"]}
    first = Part([2, 1], runs, {"offset": [7, 8, 3]})
    second = Part([1], {"at": (NOW,), "kind": "acked", "topic": "a", "granted_at": (NOW,)}, {"offset": (None,)})

    (batch,) = encode(EVENTS, [first, second])

    names = ("at", "kind", "topic", "count", "group", "offset", "granted_at")
    assert [[row[name] for name in names] for row in rows_of(batch.body)] == [
        [NOW, "published", "a", 1, None, 7, None],
        [NOW, "published", "a", 1, None, 8, None],
        [NOW + 1, "published", "b", 1, "g", 3, None],
        [NOW, "acked", "a", None, None, None, NOW],
    ]


def test_column_types_are_those_of_the_schema() -> None:
    """Readers declare the schema and do not infer it from a batch."""
    schema = pa.ipc.open_stream(encode(EVENTS, [])[0].body).schema
    kinds = {
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "int": pa.int64(),
        "instant": pa.timestamp("ms", tz="UTC"),
    }

    assert [(field.name, field.type) for field in schema] == [(name, kinds[kind]) for name, kind in EVENTS.columns]


def test_rows_that_exceed_one_message_are_split() -> None:
    """Reasons may have 4 KB each, and a broker limits the message size."""
    rows = 500
    columns = {"at": list(range(rows)), "reason": [os.urandom(1_000).hex() for _ in range(rows)]}

    batches = encode(EVENTS, [Part([1] * rows, columns)], max_bytes=100_000)

    assert len(batches) > 5
    assert max(len(batch.body) for batch in batches) <= 100_000
    assert sum(batch.rows for batch in batches) == rows
    assert [row["at"] for batch in batches for row in rows_of(batch.body)] == columns["at"]


def test_a_split_batch_keeps_only_its_own_dictionary_words() -> None:
    """A batch that is split must shrink with its rows, even if every row has a different client id."""
    rows = 20_000
    columns = {"at": list(range(rows)), "client": [f"{number:08}-{os.urandom(32).hex()}" for number in range(rows)]}

    batches = encode(EVENTS, [Part([1] * rows, columns)], max_bytes=200_000)

    assert max(len(batch.body) for batch in batches) <= 200_000
    assert len(batches) < 40
    assert [row["client"] for batch in batches for row in rows_of(batch.body)] == columns["client"]


def test_a_row_takes_few_bytes() -> None:
    """Ids are random. The other columns must be small, or events would need more space than the messages."""
    rows = 5_000
    columns = {
        "at": [NOW + number // 50 for number in range(rows)],
        "kind": "published",
        "topic": ["orders"] * rows,
        "queue": [f"b:{number % 8}" for number in range(rows)],
        "offset": list(range(rows)),
        "id": [os.urandom(16).hex() for _ in range(rows)],
    }

    (batch,) = encode(EVENTS, [Part([1] * rows, columns)])

    assert len(batch.body) / rows < 60
