"""The data source `mqgate`: batch and streaming reads, batch and streaming writes."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mqgate.spark.columns import full_schema
from mqgate.spark.options import parse, properties_kind
from mqgate.spark.reader import BatchReader
from mqgate.spark.stream_reader import StreamReader

__all__ = ["MqgateSource"]


class MqgateSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "mqgate"

    def schema(self) -> StructType:
        return full_schema(properties_kind(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(parse(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mqgate.spark.writer import batch_writer  # noqa: PLC0415 - imports the HTTP client, which readers may not need

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from mqgate.spark.writer import stream_writer  # noqa: PLC0415 - the same

        return stream_writer(self.options, schema, overwrite)
