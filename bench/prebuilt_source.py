"""Two sources for comparison: prebuilt Arrow batches, and tuples. They are shipped to the Spark workers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_SCHEMA = (
    "id STRING, topic STRING, queue STRING, offset BIGINT, key STRING, tag STRING, "
    "properties MAP<STRING,STRING>, body BINARY, storedAt TIMESTAMP"
)
_BATCH = 10_000
_TASKS = 4
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _row(number: int) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "topic": "bench",
        "queue": "local:0",
        "offset": number,
        "key": f"key-{number}",
        "tag": "bench",
        "properties": {"region": "eu-west", "source": "shop", "version": "12"},
        "body": b"x" * 256,
        "storedAt": _AT,
    }


class _Reader(DataSourceReader):
    def __init__(self, rows: int, schema: StructType) -> None:
        self._rows = rows
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(_TASKS)]


class _ArrowReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - all partitions are equal
        names = self._schema.fieldNames()
        rows = [{name: row[name] for name in names} for row in map(_row, range(_BATCH))]
        batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(self._schema, timezone="UTC"))
        for _ in range(self._rows // _TASKS // _BATCH):
            yield batch


class _TupleReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - all partitions are equal
        row = tuple(_row(0).values())
        for number in range(self._rows // _TASKS):
            yield (row[0], row[1], row[2], number, *row[4:])


class Prebuilt(DataSource):
    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ArrowReader(int(self.options["rows"]), schema)


class Tuples(Prebuilt):
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TupleReader(int(self.options["rows"]), schema)
