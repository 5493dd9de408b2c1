"""Event batches as a gateway writes them, built by hand according to `core.events`."""

import base64
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from mqgate.client import Client
from mqgate.core.events import EVENTS, Table
from mqgate.spark.pipelines.decode import Raw

__all__ = ["NOON_MS", "GatewayEvents", "arrow_body", "event", "publish_batches", "raw"]

NOON_MS = 1_794_830_400_000
_TYPES = {
    "text": pa.string(),
    "word": pa.dictionary(pa.int32(), pa.string()),
    "int": pa.int64(),
    "instant": pa.timestamp("ms", tz="UTC"),
}


def event(kind: str, at: int = NOON_MS, topic: str = "orders", **members: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at, "topic": topic, **members}


def arrow_body(rows: Iterable[Mapping[str, Any]], table: Table = EVENTS, **more: Any) -> bytes:
    """Return the body of a batch. `more` are columns that this version does not have."""
    rows = list(rows)
    columns = {name: pa.array([row.get(name) for row in rows], _TYPES[kind]) for name, kind in table.columns}
    found = pa.table({**columns, **{name: pa.array([value] * len(rows)) for name, value in more.items()}})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return sink.getvalue()


class GatewayEvents:
    """One incarnation of a gateway, whose clock is `clock_error` ms ahead."""

    def __init__(self, gateway: str = "gw-1", incarnation: str = "i-1", clock_error: int = 0) -> None:
        self.gateway = gateway
        self.incarnation = incarnation
        self.clock_error = clock_error
        self.sequence = 0

    def batch(
        self, rows: Iterable[Mapping[str, Any]] = (), table: Table = EVENTS, *, sent_at: int = NOON_MS, **more: str
    ) -> tuple[dict[str, str], bytes]:
        """Return the properties and the body of the next batch. Instants `at` use the clock of the gateway."""
        self.sequence += 1
        shifted = [{**row, "at": row["at"] + self.clock_error} for row in rows]
        properties = {
            "schema": table.schema,
            "gateway": self.gateway,
            "incarnation": self.incarnation,
            "sequence": str(self.sequence),
            "sent_at": str(sent_at + self.clock_error),
            "dropped": "0",
            **more,
        }
        return properties, arrow_body(shifted, table)


def raw(properties: Mapping[str, str], body: bytes, *, stored_at: int = NOON_MS, offset: int = 0) -> Raw:
    """Return the message of a batch as stored in the log."""
    return Raw("events", "local:0", offset, json.dumps(properties), body, stored_at * 1000)


def publish_batches(client: Client, topic: str, *batches: tuple[Mapping[str, str], bytes]) -> None:
    """Publish batches to a topic that replaces the events topic of the gateway."""
    envelopes = [
        {"bodyBase64": base64.b64encode(body).decode(), "properties": properties, "key": properties["gateway"]}
        for properties, body in batches
    ]
    for result in client.publish_batch(topic, envelopes):
        assert "error" not in result, result
