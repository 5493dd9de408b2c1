"""The events topic as its readers see it: batches of rows, over HTTP."""

import base64
from typing import Any, NamedTuple

import httpx
import pyarrow as pa

from mqgate.core.events import EVENTS_TOPIC

__all__ = ["Batch", "batches", "events", "rows_of"]

Row = dict[str, Any]


class Batch(NamedTuple):
    """One message of the topic. `sequence` is its number within the incarnation."""

    schema: str
    incarnation: str
    sequence: int
    dropped: int
    is_last: bool
    rows: list[Row]
    properties: dict[str, str]
    key: str


def rows_of(body: bytes) -> list[Row]:
    """Return the rows of a batch, with instants as milliseconds."""
    table = pa.ipc.open_stream(body).read_all()
    plain = [
        pa.field(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in table.schema
    ]
    found: list[Row] = table.cast(pa.schema(plain)).to_pylist()
    return found


async def batches(api: httpx.AsyncClient) -> list[Batch]:
    """Return all batches, in order within a queue."""
    found = []
    for queue in (await _get(api, "queues"))["items"]:
        offset = 0
        while True:
            page = await _get(api, f"queues/{queue['queue']}/messages", offset=offset, max=1000)
            found += [_batch(message) for message in page["messages"]]
            offset = page["next"]
            if not page["messages"]:
                break
    return found


async def events(api: httpx.AsyncClient, *kinds: str) -> list[Row]:
    """Return the rows of `events/1` of these kinds, by default of all."""
    found = [row for batch in await batches(api) if batch.schema == "events/1" for row in batch.rows]
    return [row for row in found if not kinds or row["kind"] in kinds]


async def _get(api: httpx.AsyncClient, path: str, **query: int) -> Any:
    response = await api.get(f"/v1/topics/{EVENTS_TOPIC}/{path}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def _batch(message: Row) -> Batch:
    values = message["properties"]
    return Batch(
        schema=values["schema"],
        incarnation=values["incarnation"],
        sequence=int(values["sequence"]),
        dropped=int(values["dropped"]),
        is_last=values.get("last") == "true",
        rows=rows_of(base64.b64decode(message["bodyBase64"])),
        properties=values,
        key=message["key"],
    )
