"""Rows of messages: columns selected by a schema, three formats of properties, bodies as bytes or text."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructField, StructType

from mqgate.spark.columns import RowFormat, UndecodableBody, full_schema, row_format_of
from mqgate.spark.log import FIELDS
from mqgate.spark.options import OptionInvalid, Properties

TWO = [("a", "1"), ("b", "ü")]
AT = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)


def found(**columns: list[object]) -> pa.RecordBatch:
    """Return a batch of a log with these columns."""
    return pa.RecordBatch.from_arrays(
        [pa.array(values, FIELDS[name]) for name, values in columns.items()], list(columns)
    )


# Spark parses such a text in its JVM, and there is none here.
TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
}


def row_format(schema: str, properties: Properties = "map", *, is_undecodable_null: bool = False) -> RowFormat:
    pairs = [column.split(" ") for column in schema.split(", ")]
    fields = StructType([StructField(name, TYPES[kind]) for name, kind in pairs])
    return row_format_of(fields, properties, is_undecodable_null=is_undecodable_null)


def test_all_columns_have_the_types_that_spark_expects() -> None:
    """Spark compares the Arrow schema of the first batch exactly with its own."""
    whole = row_format_of(full_schema("map"), "map", is_undecodable_null=False)
    batch = found(id=["i"], offset=[7], key=["k"], tag=[None], properties=['{"a":"1"}'], body=[b"\xff"], storedAt=[AT])

    rows = whole.rows("orders", "local:0", 7, batch)

    assert rows.schema == to_arrow_schema(full_schema("map"), timezone="UTC")
    assert rows.to_pylist() == [
        {
            "id": "i",
            "topic": "orders",
            "queue": "local:0",
            "offset": 7,
            "key": "k",
            "tag": None,
            "properties": [("a", "1")],
            "body": b"\xff",
            "storedAt": AT,
        }
    ]


def test_a_schema_selects_and_orders_columns() -> None:
    """Only requested columns are read."""
    requested = row_format("body BINARY, queue STRING, id STRING")

    rows = requested.rows("orders", "local:0", 0, found(body=[b"x"], id=["i"]))

    assert requested.fields == ("body", "id")
    assert rows.to_pylist() == [{"body": b"x", "queue": "local:0", "id": "i"}]


def test_topic_and_queue_are_not_read() -> None:
    """Their values are known, but the number of rows is not."""
    requested = row_format("topic STRING")

    assert requested.fields == ()
    assert requested.rows("orders", "local:0", 0, found(offset=[1, 2])).to_pylist() == [{"topic": "orders"}] * 2


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("map", "properties MAP<STRING,STRING>", [TWO, None, TWO, [("c", "3")]]),
        ("json", "properties STRING", ['{"a":"1","b":"ü"}', None, '{"a":"1","b":"ü"}', '{"c":"3"}']),
        ("raw", "properties STRING", ["a\x011\x02b\x01ü", None, "a\x011\x02b\x01ü", "c\x013"]),
    ],
)
def test_properties_have_three_formats(kind: Properties, column: str, expected: list[object]) -> None:
    """A map is convenient, text is cheaper, and missing properties are null."""
    texts: list[object] = ['{"a":"1","b":"ü"}', None, '{"a":"1","b":"ü"}', '{"c":"3"}']

    rows = row_format(column, kind).rows("orders", "local:0", 0, found(properties=texts))

    assert rows.column("properties").to_pylist() == expected


@pytest.mark.parametrize("kind", ["map", "json", "raw"])
def test_a_batch_without_properties_has_the_right_type(kind: Properties) -> None:
    """A batch of nulls must still have the declared type."""
    schema = full_schema(kind)["properties"]

    rows = row_format_of(StructType([schema]), kind, is_undecodable_null=False).rows(
        "orders", "local:0", 0, found(properties=[None, None])
    )

    assert rows.column("properties").to_pylist() == [None, None]


def test_bodies_can_be_text() -> None:
    """Most bodies are text."""
    rows = row_format("body STRING").rows("orders", "local:0", 0, found(body=["grüß".encode(), b""]))

    assert rows.column("body").to_pylist() == ["grüß", ""]


def test_an_undecodable_body_is_reported_with_its_offset() -> None:
    """The user can find the message, and the error states the remedy."""
    with pytest.raises(UndecodableBody, match=r"orders local:0 offset 41 .* undecodable"):
        row_format("body STRING").rows("orders", "local:0", 40, found(body=[b"fine", b"\xff\xfe", b"\xff"]))


def test_an_undecodable_body_may_be_null() -> None:
    """The option does not change the other bodies."""
    rows = row_format("body STRING", is_undecodable_null=True).rows(
        "orders", "local:0", 0, found(body=[b"fine", b"\xff"])
    )

    assert rows.column("body").to_pylist() == ["fine", None]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("id STRING, value BINARY", "column value does not exist: use id, topic"),
        ("offset INT", "column offset is BIGINT, not int"),
        ("body INT", "column body is BINARY or STRING, not int"),
        ("properties STRING", "column properties is MAP<STRING,STRING>, not string: see option properties"),
    ],
)
def test_an_invalid_schema_is_rejected(schema: str, expected: str) -> None:
    """The error occurs on the driver, before any task runs."""
    with pytest.raises(OptionInvalid) as refused:
        row_format(schema)

    assert expected in str(refused.value)


def test_the_type_of_properties_follows_the_option() -> None:
    """The schema that Spark shows must match the rows."""
    assert full_schema("map")["properties"].dataType == MapType(StringType(), StringType())
    assert full_schema("raw")["properties"].dataType == StringType()
