"""Options and columns of the sink, checked on the driver."""

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, MapType, StringType, StructType, TimestampType

from mqgate.spark.options import OptionInvalid
from mqgate.spark.sink_options import COLUMNS, ColumnInvalid, check_append, check_columns, parse_sink

ADDRESS = {"url": "http://127.0.0.1:8080", "topic": "orders"}


def frame(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def test_options_have_defaults_and_ignore_case() -> None:
    """Spark passes option names in lower case."""
    options = parse_sink({**ADDRESS, "batchsize": "20", "RETRYTIMEOUT": "5s"}, is_stream=False)

    assert (options.topic, options.producer, options.batch_size) == ("orders", None, 20)
    assert options.retry_timeout.total_seconds() == 5


def test_every_batch_write_has_its_own_id() -> None:
    """Appending the same rows twice is intended, unless the write has a name."""
    first, second = (parse_sink(ADDRESS, is_stream=False) for _ in range(2))
    named = parse_sink({**ADDRESS, "writeId": "nightly"}, is_stream=False)

    assert first.write_id != second.write_id
    assert named.write_id == "nightly"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"topik": "x"}, "option topik is unknown: did you mean topic"),
        ({"url": " , "}, "option url is missing"),
        ({"topic": "a topic"}, "option topic must be 1 to 100 characters"),
        ({"producer": "p.q"}, "option producer must be 1 to 100 characters"),
        ({"batchSize": "1001"}, "option batchSize must be a whole number, 1 to 1000"),
        ({"batchSize": "many"}, "option batchSize must be a whole number, 1 to 1000"),
        ({"retryTimeout": "soon"}, "option retryTimeout must be seconds or text"),
        ({"writeId": ""}, "option writeId must have 1 to 200 characters"),
    ],
)
def test_an_invalid_option_is_reported_with_the_remedy(given: dict[str, str], expected: str) -> None:
    """A write that would not do what the user intends must not start."""
    with pytest.raises(OptionInvalid, match=expected):
        parse_sink(ADDRESS | given, is_stream=False)


def test_a_topic_is_required() -> None:
    """There is no default topic."""
    with pytest.raises(OptionInvalid, match="option topic is missing"):
        parse_sink({"url": ADDRESS["url"]}, is_stream=False)


def test_a_stream_has_no_write_id() -> None:
    """With one name for all batches, equal rows of two batches would count as repeats."""
    with pytest.raises(OptionInvalid, match="option writeId is for batch writes"):
        parse_sink({**ADDRESS, "writeId": "x"}, is_stream=True)


def test_options_of_spark_are_accepted() -> None:
    """Spark passes the checkpoint location to the sink."""
    options = parse_sink({**ADDRESS, "checkpointlocation": "anywhere"}, is_stream=True)

    assert options.topic == "orders"


def test_the_key_is_not_shown() -> None:
    """Options are printed in logs."""
    assert "secret" not in repr(parse_sink({**ADDRESS, "key": "secret"}, is_stream=False))


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_overwrite_is_rejected(is_stream: bool) -> None:
    """Replacing a topic would delete messages that other groups have not read."""
    with pytest.raises(OptionInvalid, match=r"cannot be overwritten.*append"):
        check_append(overwrite=True, is_stream=is_stream)


def test_all_columns_are_accepted() -> None:
    """Both types of body and of properties are supported."""
    text, texts = StringType(), MapType(StringType(), StringType())
    rest = {"key": text, "tag": text, "deliverAt": TimestampType(), "idempotencyKey": text}

    check_columns(frame(body=BinaryType(), properties=texts, **rest))
    check_columns(frame(properties=text, body=text, **rest))

    assert {"body", "properties", *rest} == set(COLUMNS)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (frame(key=StringType()), "column body is missing"),
        (frame(body=LongType()), "column body is bigint, must be BINARY or STRING"),
        (frame(body=StringType(), deliverAt=StringType()), "column deliverAt is string, must be TIMESTAMP"),
        (frame(body=StringType(), deliverat=TimestampType()), "column deliverat .* did you mean deliverAt"),
        (
            frame(body=StringType(), offset=LongType()),
            "column offset cannot be written to a topic: select only body, key",
        ),
        (frame(body=StringType(), properties=MapType(StringType(), LongType())), "column properties is map<string"),
        (frame(body=MapType(StringType(), StringType())), "column body is map<string,string>"),
        (frame(body=StringType()).add("body", StringType()), "column body is duplicated"),
    ],
)
def test_an_invalid_column_is_reported_with_the_remedy(schema: StructType, expected: str) -> None:
    """A column that is not written would be lost silently."""
    with pytest.raises(ColumnInvalid, match=expected):
        check_columns(schema)
