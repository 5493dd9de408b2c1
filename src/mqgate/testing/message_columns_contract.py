"""The contract of bulk reads of message logs."""

import json

import pyarrow as pa
import pytest

from mqgate.core.errors import QueueNotFound, TopicNotFound
from mqgate.core.message import Draft
from mqgate.ports.message_columns import COLUMNS, DEFAULT_COLUMNS
from mqgate.ports.message_log import MessageLog
from mqgate.testing.samples import a_draft

__all__ = ["ColumnsContract"]

_TOPIC = "orders"
_QUEUE = "local:0"
_LARGE = 1 << 20
_TYPES = {
    "id": pa.string(),
    "topic": pa.string(),
    "queue": pa.string(),
    "offset": pa.int64(),
    "key": pa.string(),
    "tag": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
    "storedAt": pa.timestamp("ms", tz="UTC"),
    "propertiesJson": pa.string(),
}


def _all_kinds() -> list[Draft]:
    """Return drafts with and without each field, and with unusual texts and bodies."""
    return [
        a_draft(bytes(range(256)), queue=0, key="ключ", tag="é", properties={"a": "1", "ü": '\x00 \t\n\\"'}),
        a_draft("bare", queue=0),
        a_draft("one", queue=0, properties={"only": ","}),
        a_draft(b"\x00", queue=0, key="a,b", tag="null"),
        a_draft(b"\x02\x01", queue=0, key="k"),
        a_draft("\x01", queue=0, tag="t", properties={"null": "null"}),
    ]


class ColumnsContract:
    """Tests of bulk reads. An adapter provides `log`, without topics, whose one broker is named `local`."""

    async def test_columns_have_the_values_of_the_messages(self, log: MessageLog) -> None:
        """Both ways to read a log must agree, also for null, empty and unusual values."""
        await log.create(_TOPIC, 1)
        await log.append(_TOPIC, _all_kinds())

        page = await log.read_columns(_TOPIC, _QUEUE, 0, 100, _LARGE, DEFAULT_COLUMNS)

        page.validate(full=True)
        assert [
            (row["id"], row["topic"], row["queue"], row["offset"], row["body"], row["key"], row["tag"],
             dict(row["properties"] or {}), row["storedAt"])
            for row in page.to_pylist()
        ] == [
            (*message[:7], dict(message.properties), message.stored_at)
            for message in await log.read(_TOPIC, _QUEUE, 0, 100, _LARGE)
        ]  # fmt: skip
        assert [properties is None for properties in page["properties"].to_pylist()] == [
            False,
            True,
            False,
            True,
            True,
            False,
        ]

    async def test_properties_are_available_as_json(self, log: MessageLog) -> None:
        """This is the cheaper form. It is null without properties."""
        await log.create(_TOPIC, 1)
        await log.append(_TOPIC, _all_kinds())

        page = await log.read_columns(_TOPIC, _QUEUE, 0, 100, _LARGE, ["propertiesJson", "properties"])

        texts, maps = (page[name].to_pylist() for name in ("propertiesJson", "properties"))
        assert [text and json.loads(text) for text in texts] == [properties and dict(properties) for properties in maps]
        assert texts[1] is None

    @pytest.mark.parametrize("names", [["body"], ["offset"], ["topic", "id"], COLUMNS, COLUMNS[::-1]], ids=",".join)
    async def test_the_columns_are_those_requested_in_order(self, log: MessageLog, names: list[str]) -> None:
        """Other columns are not read. An empty page must have the same columns."""
        await log.create(_TOPIC, 1)
        await log.append(_TOPIC, _all_kinds())

        page = await log.read_columns(_TOPIC, _QUEUE, 1, 2, _LARGE, names)
        empty = await log.read_columns(_TOPIC, _QUEUE, 6, 2, _LARGE, names)

        expected = pa.schema([pa.field(name, _TYPES[name], nullable=name != "offset") for name in names])
        assert page.schema.equals(expected)
        assert empty.schema.equals(expected)
        assert (page.num_rows, empty.num_rows) == (2, 0)

    @pytest.mark.parametrize("max_bytes", [1, 40, 200, _LARGE])
    async def test_pages_of_any_size_cover_the_whole_queue(self, log: MessageLog, max_bytes: int) -> None:
        """A reader continues after the last row, and must make progress with every page."""
        await log.create(_TOPIC, 2)
        sizes = [500, 10, 10, 500, *(10,) * 60, 500]
        drafts = [a_draft(b"%d" % number * size, queue=0) for number, size in enumerate(sizes)]
        await log.append(_TOPIC, [*drafts, a_draft("other", queue=1)])

        pages: list[list[bytes]] = []
        while True:
            offset = sum(map(len, pages))
            page = await log.read_columns(_TOPIC, _QUEUE, offset, 50, max_bytes, ["offset", "body"])
            if not page.num_rows:
                break
            assert page["offset"].to_pylist() == list(range(offset, offset + page.num_rows))
            pages.append(page["body"].to_pylist())

        assert [body for page in pages for body in page] == [draft.body for draft in drafts]
        assert all(len(page) <= 50 for page in pages)
        assert all(len(page) == 1 or sum(map(len, page)) <= max_bytes for page in pages)

    async def test_columns_of_an_unknown_topic_or_queue_are_rejected(self, log: MessageLog) -> None:
        """A misspelled name must not return an empty page."""
        await log.create(_TOPIC, 1)

        with pytest.raises(TopicNotFound):
            await log.read_columns("nowhere", _QUEUE, 0, 1, 1, ["id"])
        with pytest.raises(QueueNotFound):
            await log.read_columns(_TOPIC, "local:1", 0, 1, 1, ["id"])
