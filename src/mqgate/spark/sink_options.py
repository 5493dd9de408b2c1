"""Options and columns of the sink. They are checked on the driver before any task runs."""

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
    "producer": "the producer to publish as; not required with a producer key",
    "batchSize": "maximum messages per request, 1 to 1000 (default 500)",
    "writeId": "batch: name of the write; repeating it within the idempotency window of the gateway adds no messages",
    "retryTimeout": "how long a task retries while no message is stored (default 2m)",
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
# Spark passes its own options to the sink as well.
_SPARK_OPTIONS = frozenset({"checkpointlocation"})
_DEFAULT_BATCH, _MAX_BATCH = "500", 1_000
_MAX_ID_LENGTH = 200


class ColumnInvalid(ValueError):
    """A frame that cannot be written to a topic. The text names the column and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    connection: Connection
    topic: str
    producer: str | None
    batch_size: int
    write_id: str
    retry_timeout: timedelta


def parse_sink(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Parse all options. Raise OptionInvalid for the first invalid one."""
    options = check_names({name: given[name] for name in given if name.lower() not in _SPARK_OPTIONS}, SINK_OPTIONS)
    if is_stream and "writeId" in options:
        raise OptionInvalid(
            "option writeId is for batch writes: remove it, because a stream is identified by its checkpoint"
        )
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
    """Raise OptionInvalid for an overwrite: a topic is append-only."""
    if overwrite:
        instead = 'outputMode("append")' if is_stream else 'mode("append")'
        raise OptionInvalid(f"a topic cannot be overwritten, only appended to: use {instead}")


def check_columns(schema: StructType) -> None:
    """Raise ColumnInvalid for unknown, duplicate, missing or wrongly typed columns."""
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in COLUMNS:
            near = difflib.get_close_matches(field.name.lower(), {name.lower(): name for name in COLUMNS}, 1)
            meant = next((name for name in COLUMNS if name.lower() in near), None)
            remedy = f"did you mean {meant}?" if meant else f"select only {', '.join(COLUMNS)}"
            raise ColumnInvalid(f"column {field.name} cannot be written to a topic: {remedy}")
        if names.count(field.name) > 1:
            raise ColumnInvalid(f"column {field.name} is duplicated: select it once")
        if not _is_accepted(field.name, field.dataType):
            raise ColumnInvalid(
                f"column {field.name} is {field.dataType.simpleString()}, must be {COLUMNS[field.name]}: cast it"
            )
    if "body" not in names:
        raise ColumnInvalid(
            "column body is missing: select the content of the message as body, such as to_json(struct(*)) AS body"
        )


def _is_accepted(name: str, kind: DataType) -> bool:
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
    raise OptionInvalid("option topic is missing: set the topic to write to")
