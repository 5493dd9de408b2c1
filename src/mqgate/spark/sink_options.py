"""What the sink takes: its options and columns; checked on the driver before any task runs."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType, TimestampType

from mqgate.core.errors import MqgateError
from mqgate.core.names import check_name
from mqgate.spark.options import CONNECTION, Connection, OptionInvalid, check_names, connection, duration, number

__all__ = ["COLUMNS", "SINK_OPTIONS", "ColumnInvalid", "SinkOptions", "check_append", "check_columns", "parse_sink"]

SINK_OPTIONS: Mapping[str, str] = {
    **{name: CONNECTION[name] for name in ("url", "key", "timeout")},
    "topic": "the topic to write to",
    "producer": "the producer to write as; not needed with a producer's key",
    "batchSize": "most messages of a request, 1 to 1000 (default 500)",
    "writeId": "batch: a name of this write, so that writing the same again within the gateway's window adds nothing",
    "retryTimeout": "how long a task goes on trying while no message gets through (default 2m)",
}
COLUMNS: Mapping[str, str] = {
    "body": "BINARY or STRING, never null",
    "key": "STRING",
    "tag": "STRING",
    "properties": "MAP<STRING,STRING>, or STRING with a JSON object",
    "deliverAt": "TIMESTAMP",
    "idempotencyKey": "STRING",
}
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "key": (StringType,),
    "tag": (StringType,),
    "properties": (MapType, StringType),
    "deliverAt": (TimestampType,),
    "idempotencyKey": (StringType,),
}
# They come along, though they are not for us.
_SPARKS_OWN = frozenset({"checkpointlocation"})
_DEFAULT_BATCH, _MAX_BATCH = "500", 1_000
_MAX_ID_LENGTH = 200


class ColumnInvalid(ValueError):
    """A frame that is no frame of messages; the text names the column and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    connection: Connection
    topic: str
    producer: str | None
    batch_size: int
    write_id: str
    retry_timeout: timedelta


def parse_sink(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """All options, or an OptionInvalid that names the first bad one."""
    options = check_names({name: given[name] for name in given if name.lower() not in _SPARKS_OWN}, SINK_OPTIONS)
    if is_stream and "writeId" in options:
        raise OptionInvalid("option writeId is for batch writes: a stream is known by its checkpoint, leave it out")
    write_id = "" if is_stream else options.get("writeId", uuid4().hex)
    if not is_stream and not 1 <= len(write_id) <= _MAX_ID_LENGTH:
        raise OptionInvalid(f"option writeId must have 1 to {_MAX_ID_LENGTH} characters")
    return SinkOptions(
        connection=connection(options),
        topic=_name(options, "topic") or _missing(),
        producer=_name(options, "producer"),
        batch_size=number({"batchSize": _DEFAULT_BATCH, **options}, "batchSize", 1, _MAX_BATCH),
        write_id=write_id,
        retry_timeout=duration(options, "retryTimeout", timedelta(minutes=2)),
    )


def check_append(*, overwrite: bool, is_stream: bool) -> None:
    """A topic is a log: nothing of it is ever replaced."""
    if overwrite:
        instead = 'outputMode("append")' if is_stream else 'mode("append")'
        raise OptionInvalid(f"a topic cannot be overwritten, it is only appended to: use {instead}")


def check_columns(schema: StructType) -> None:
    """Refuse a frame with columns that would be dropped, or whose values would have to be guessed at."""
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in COLUMNS:
            near = difflib.get_close_matches(field.name.lower(), {name.lower(): name for name in COLUMNS}, 1)
            meant = next((name for name in COLUMNS if name.lower() in near), None)
            remedy = f"did you mean {meant}?" if meant else f"select only {', '.join(COLUMNS)}"
            raise ColumnInvalid(f"column {field.name} is not written to a topic: {remedy}")
        if names.count(field.name) > 1:
            raise ColumnInvalid(f"column {field.name} is there twice: select it once")
        if not _is_taken(field.name, field.dataType):
            raise ColumnInvalid(
                f"column {field.name} is {field.dataType.simpleString()}, must be {COLUMNS[field.name]}: cast it"
            )
    if "body" not in names:
        raise ColumnInvalid(
            "column body is missing: select what a message is to hold as body, such as to_json(struct(*)) AS body"
        )


def _is_taken(name: str, kind: DataType) -> bool:
    if isinstance(kind, MapType):
        is_text = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
        return name == "properties" and is_text
    return isinstance(kind, _TYPES[name])


def _name(options: Mapping[str, str], option: str) -> str | None:
    if option not in options:
        return None
    try:
        return check_name(options[option].strip(), option)
    except MqgateError as error:
        raise OptionInvalid(f"option {error}") from None


def _missing() -> str:
    raise OptionInvalid("option topic is missing: the topic to write to")
