"""Stored records as Arrow arrays: only the requested columns are decoded.

The gateway's bulk reads and Spark's executors share this module. Arrow is imported by the first `take`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mqgate.rocketmq.property_texts import PropertyReader
from mqgate.rocketmq.remoting.pulled_page import PulledPage

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rows"]

# In the order of property_texts.DescribedText.
_FROM_PROPERTIES = ("id", "key", "tag", "properties")


class Rows:
    """Collected columns of records: any of id, key, tag, properties (JSON), offset, body and storedAt (in ms)."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._described = [(at, name) for at, name in enumerate(_FROM_PROPERTIES) if name in columns]
        self._properties = PropertyReader(with_user_properties="properties" in columns)
        self.count = 0
        self.bytes = 0

    def add(self, page: PulledPage) -> None:
        columns = self._columns
        self.count += len(page)
        self.bytes += page.bytes
        if "offset" in columns:
            columns["offset"] += page.offsets
        if "body" in columns:
            columns["body"] += page.bodies
        if "storedAt" in columns:
            columns["storedAt"] += page.stored_ms
        if self._described:
            records = self._properties.read(page.texts)
            for at, name in self._described:
                columns[name] += [record[at] for record in records]
        if "id" in columns:
            _fill_missing_ids(columns["id"], page)

    def take(self) -> dict[str, "pa.Array"]:
        """Return the collected columns by name, and start over with none."""
        import pyarrow as pa  # noqa: PLC0415 - see above

        types = {"offset": pa.int64(), "body": pa.binary(), "storedAt": pa.timestamp("ms", tz="UTC")}
        found = {name: pa.array(values, types.get(name, pa.string())) for name, values in self._columns.items()}
        for values in self._columns.values():
            values.clear()
        self.count = self.bytes = 0
        return found


def _fill_missing_ids(ids: list[str | None], page: PulledPage) -> None:
    """Use the offset id for messages that were stored without an id."""
    first = len(ids) - len(page)
    if None in ids[first:]:
        ids[first:] = [found or page.offset_id(index) for index, found in enumerate(ids[first:])]
