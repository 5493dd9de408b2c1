"""Rows become envelopes with idempotency keys."""

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from mqgate.spark.sink_rows import Row, RowRefused, chunks, rows

TEXTS = pa.map_(pa.string(), pa.string())


def batch(**columns: pa.Array | list[Any]) -> pa.RecordBatch:
    return pa.record_batch(columns)


def envelopes(*batches: pa.RecordBatch, identity: str = "query 1 batch 7 partition 0") -> list[dict[str, Any]]:
    return [json.loads(row.envelope) for row in rows(batches, identity)]


def keys(*batches: pa.RecordBatch, **identity: str) -> list[str]:
    return [envelope["idempotencyKey"] for envelope in envelopes(*batches, **identity)]


def test_a_row_becomes_an_envelope() -> None:
    """It contains every column, and omits nulls."""
    given = batch(
        body=pa.array([b"caf\xc3\xa9", b"\xff\x00"]),
        key=["k", None],
        tag=["t", None],
        properties=pa.array([[("b", "2"), ("a", "1")], None], TEXTS),
        deliverAt=pa.array([1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC")),
    )

    full, bare = envelopes(given)

    assert full.pop("idempotencyKey") != bare.pop("idempotencyKey")
    assert full == {
        "body": "café",
        "key": "k",
        "tag": "t",
        "properties": {"a": "1", "b": "2"},
        "deliverAt": 1_700_000_000_000,
    }
    assert bare == {"bodyBase64": "/wA="}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_give_the_same_body(kind: pa.DataType) -> None:
    """Spark may pass either Arrow type."""
    (envelope,) = envelopes(batch(body=pa.array(["text"], pa.string()).cast(kind)))

    assert envelope["body"] == "text"


def test_text_that_is_not_utf8_is_sent_unchanged() -> None:
    """A cast from BINARY to STRING checks nothing, and the sink must not change bytes."""
    body = pa.array([b"\xff"], pa.binary()).view(pa.string())

    (envelope,) = envelopes(batch(body=body))

    assert envelope["bodyBase64"] == "/w=="


def test_a_message_is_never_early() -> None:
    """The gateway uses milliseconds, Spark microseconds. Instants before 1970 are past."""
    at = pa.array([1_700_000_000_000_001, -5], pa.timestamp("us", tz="UTC"))

    found = envelopes(batch(body=["a", "b"], deliverAt=at))

    assert [envelope["deliverAt"] for envelope in found] == [1_700_000_000_001, 0]


def test_properties_may_be_json() -> None:
    """The source returns this format with properties=json. Missing properties stay missing."""
    found = envelopes(batch(body=["a", "b", "c"], properties=['{"b": "2", "a": "ü"}', "{}", None]))

    assert [message.get("properties") for message in found] == [{"a": "ü", "b": "2"}, None, None]


def test_a_repeat_has_the_same_keys_in_any_order() -> None:
    """A repeated task may get its rows in another order and other batches. Equal rows stay distinct."""
    bodies = [f"row {number % 400}" for number in range(1_000)]
    first = keys(batch(body=bodies))
    random.Random(7).shuffle(bodies)

    again = keys(batch(body=bodies[:123]), batch(body=bodies[123:]))

    assert len(set(first)) == 1_000
    assert sorted(again) == sorted(first)


def test_a_key_identifies_one_message() -> None:
    """Any difference in the row or in its write gives another key."""
    plain = batch(body=["same"])
    others = [
        batch(body=["other"]),
        batch(body=["same"], key=["k"]),
        batch(body=["same"], tag=["k"]),
        batch(body=["same"], properties=pa.array([[("a", "1")]], TEXTS)),
        batch(body=["same"], deliverAt=pa.array([1], pa.timestamp("us", tz="UTC"))),
    ]

    found = [keys(frame)[0] for frame in [plain, *others]]
    found += [keys(plain, identity=f"query 1 batch {number} partition {number}")[0] for number in range(50)]

    assert len(set(found)) == len(found)


def test_the_order_of_properties_does_not_change_the_key() -> None:
    """The order of a map is not stable."""
    one, other = ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")])

    assert keys(batch(body=["x"], properties=pa.array([one], TEXTS))) == keys(
        batch(body=["x"], properties=pa.array([other], TEXTS))
    )


def test_a_given_key_takes_precedence() -> None:
    """Users may define per row what a repeat is."""
    mine, ours = keys(batch(body=["a", "a"], idempotencyKey=['order "17"', None]))

    assert mine == 'order "17"'
    assert ours == keys(batch(body=["a"]))[0]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"body": ["a", None]}, "row 1 of its partition, column body: must not be null"),
        (
            {"body": ["a"], "properties": ["[1]"]},
            "row 0 of .*, column properties: must be a JSON",
        ),
        ({"body": ["a"], "properties": ["{"]}, "row 0 of .*, column properties: must be a JSON"),
        ({"body": ["a"], "properties": ['{"n": 1}']}, "column properties: the value of n must be text, not 1"),
        ({"body": ["a"], "properties": pa.array([[("n", None)]], TEXTS)}, "the value of n must be text, not null"),
        ({"body": ["a"], "key": pa.array([b"\xff"]).view(pa.string())}, "column key: .* not UTF-8"),
    ],
)
def test_an_invalid_row_is_reported(columns: dict[str, Any], expected: str) -> None:
    """Users must find it among a million rows."""
    with pytest.raises(RowRefused, match=expected):
        envelopes(batch(**columns))


def test_rows_are_numbered_across_batches() -> None:
    """The number in an error is the index of the row in its partition."""
    with pytest.raises(RowRefused, match="row 3 of"):
        envelopes(batch(body=["a", "b"]), batch(body=["c", None]))


def test_requests_are_limited_by_number_and_size() -> None:
    """Memory use is limited here and in the gateway. A single larger row is still sent."""
    small = [Row(number, b"x") for number in range(5)]
    large = [Row(number, b"x" * (3 << 20)) for number in range(2)]
    huge = [Row(7, b"x" * (5 << 20))]

    sizes = [len(chunk) for chunk in chunks([*small, *large, *huge], 2)]

    assert sizes == [2, 2, 2, 1, 1]
