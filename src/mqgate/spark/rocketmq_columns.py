"""From stored records to Arrow, a column at a time and only those that were asked for."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from mqgate.rocketmq.remoting.pulled_page import PulledPage
from mqgate.spark.log import FIELDS
from mqgate.spark.rocketmq_properties import PropertyReader

__all__ = ["Rows"]

_MOST_ROWS = 4_096
_MOST_BYTES = 4 << 20
# As a PropertyReader gives them.
_FROM_PROPERTIES = ("id", "key", "tag", "properties")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class Rows:
    """Gathers records until there are enough for a batch."""

    def __init__(self, columns: Sequence[str], users_name: Callable[[str], str | None]) -> None:
        self._schema = pa.schema([pa.field(name, FIELDS[name]) for name in columns])
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._described = [(at, name) for at, name in enumerate(_FROM_PROPERTIES) if name in columns]
        self._properties = PropertyReader(users_name, is_all="properties" in columns)
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._count >= _MOST_ROWS or self._bytes >= _MOST_BYTES

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, page: PulledPage) -> None:
        columns = self._columns
        self._count += len(page)
        self._bytes += sum(map(len, page.bodies)) + sum(map(len, page.texts))
        if "offset" in columns:
            columns["offset"] += page.offsets
        if "body" in columns:
            columns["body"] += page.bodies
        if "storedAt" in columns:
            columns["storedAt"] += page.stored_ms
        if self._described:
            found = self._properties.read(page.texts)
            for at, name in self._described:
                columns[name] += [each[at] for each in found]
        if "id" in columns:
            _give_ids(columns["id"], page)

    def batch(self) -> pa.RecordBatch:
        """All that was gathered; begins anew."""
        gathered = [_array(self._columns[field.name], field.type) for field in self._schema]
        # Without a column a batch would have no length either.
        batch = (
            pa.RecordBatch.from_arrays(gathered, schema=self._schema)
            if gathered
            else pa.RecordBatch.from_struct_array(pa.array([{}] * self._count, pa.struct([])))
        )
        for values in self._columns.values():
            values.clear()
        self._count = self._bytes = 0
        return batch


def _give_ids(ids: list[str | None], page: PulledPage) -> None:
    """Those that came without an id have the one that their broker knows them by."""
    first = len(ids) - len(page)
    if None in ids[first:]:
        ids[first:] = [each or page.offset_id(index) for index, each in enumerate(ids[first:])]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, _MILLISECONDS).cast(kind)
    return pa.array(values, kind)
