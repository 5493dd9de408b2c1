"""From stored records to Arrow, a column at a time and only those that were asked for.

For the gateway's bulk reads and for Spark's executors alike, so nothing of the gateway is needed here. Who calls has
loaded Arrow, or can wait for it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mqgate.adapters.rocketmq.property_texts import PropertyReader
from mqgate.rocketmq.remoting.pulled_page import PulledPage

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rows"]

# As a PropertyReader gives them; properties as the text of a JSON object.
_FROM_PROPERTIES = ("id", "key", "tag", "properties")


class Rows:
    """Gathers records, of which these columns are wanted: id, key, tag, properties, offset, body, storedAt (in ms)."""

    def __init__(self, columns: Sequence[str], users_name: Callable[[str], str | None]) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._described = [(at, name) for at, name in enumerate(_FROM_PROPERTIES) if name in columns]
        self._properties = PropertyReader(users_name, is_all="properties" in columns)
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
            found = self._properties.read(page.texts)
            for at, name in self._described:
                columns[name] += [each[at] for each in found]
        if "id" in columns:
            _give_ids(columns["id"], page)

    def take(self) -> dict[str, "pa.Array"]:
        """All that was gathered, by name; begins anew."""
        import pyarrow as pa  # noqa: PLC0415 - see above

        types = {"offset": pa.int64(), "body": pa.binary(), "storedAt": pa.timestamp("ms", tz="UTC")}
        found = {name: pa.array(values, types.get(name, pa.string())) for name, values in self._columns.items()}
        for values in self._columns.values():
            values.clear()
        self.count = self.bytes = 0
        return found


def _give_ids(ids: list[str | None], page: PulledPage) -> None:
    """Those that came without an id have the one that their broker knows them by."""
    first = len(ids) - len(page)
    if None in ids[first:]:
        ids[first:] = [each or page.offset_id(index) for index, each in enumerate(ids[first:])]
