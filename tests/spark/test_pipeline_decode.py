"""Decoding of event batches: rows, quarantine, and the correction of wrong clocks."""

from typing import Any

import pytest
from event_batches import NOON_MS, GatewayEvents, arrow_body, event, raw

from mqgate.core.events import EVENTS, LAG, POLLS
from mqgate.spark.pipelines.decode import SCHEMA, decode

MINUTE = 60_000


def rows(found: Any, table: str = "events") -> list[dict[str, Any]]:
    assert found.schema == SCHEMA
    return [row for row in found.to_pylist() if row["table"] == table]


def ms(value: Any) -> int:
    return round(value.timestamp() * 1000)


def test_a_batch_becomes_its_rows_and_a_batch_row() -> None:
    """The batch row contains the number, so that gaps are found even between empty batches."""
    batch = GatewayEvents().batch([event("published", id="a", queue="local:1", offset=7, bytes=3, stored_at=NOON_MS)])

    found = decode(raw(*batch, offset=12))

    (row,), (about,) = rows(found), rows(found, "batch")
    assert (row["kind"], row["topic"], row["queue"], row["offset"], row["id"]) == (
        "published",
        "orders",
        "local:1",
        7,
        "a",
    )
    assert ms(row["stored_at"]) == NOON_MS
    assert (about["gateway"], about["incarnation"], about["sequence"], about["count"]) == ("gw-1", "i-1", 1, 1)
    assert (about["batch_queue"], about["batch_offset"], about["is_last"]) == ("local:0", 12, False)


@pytest.mark.parametrize("table", [EVENTS, LAG, POLLS])
def test_a_batch_without_rows_is_decoded(table: Any) -> None:
    """The last batch of a gateway may be empty."""
    found = decode(raw(*GatewayEvents().batch([], table, last="true")))

    assert [row["is_last"] for row in found.to_pylist()] == [True]


@pytest.mark.parametrize("error", [120_000, -120_000])
def test_a_clock_that_is_off_by_minutes_is_corrected(error: int) -> None:
    """The difference between send time and store time is the error of the clock."""
    gateway_events = GatewayEvents(clock_error=error)

    (row,) = rows(decode(raw(*gateway_events.batch([event("acked", NOON_MS - MINUTE)]))))

    assert ms(row["at"]) == NOON_MS - MINUTE


def test_events_of_a_disconnected_gateway_keep_their_time() -> None:
    """They were sent ten minutes late by a gateway whose clock was correct."""
    happened = NOON_MS - 10 * MINUTE

    (row,) = rows(decode(raw(*GatewayEvents().batch([event("acked", happened)]))))

    assert ms(row["at"]) == happened


def test_the_delay_of_a_write_is_not_a_clock_error() -> None:
    """Otherwise every latency would include the time until the batch was stored."""
    (row,) = rows(decode(raw(*GatewayEvents().batch([event("acked")]), stored_at=NOON_MS + 400)))

    assert ms(row["at"]) == NOON_MS


def test_unknown_columns_are_ignored() -> None:
    """A later gateway may add columns within the same version."""
    properties, _ = GatewayEvents().batch()

    (row,) = rows(decode(raw(properties, arrow_body([event("acked")], mood="good"))))

    assert row["kind"] == "acked"


def test_nul_characters_are_removed() -> None:
    """PostgreSQL rejects NUL, so a name with this character would stop the stream."""
    found = decode(raw(*GatewayEvents("gw\0-1").batch([event("acked", client="c\0 1")])))

    (row,), (about,) = rows(found), rows(found, "batch")
    assert (about["gateway"], row["client"]) == ("gw-1", "c 1")


def _truncated(body: bytes) -> bytes:
    return body[: len(body) // 2]


@pytest.mark.parametrize(
    ("change", "body", "reason"),
    [
        ({"schema": "events/2"}, None, "'events/2' is unknown"),
        ({"schema": "moods/1"}, None, "'moods/1' is unknown"),
        ({}, b"hello", "not an Arrow stream"),
        ({}, b"", "not an Arrow stream"),
        ({}, _truncated(arrow_body([event("acked")])), "not an Arrow stream"),
        ({}, arrow_body([], POLLS), "column kind is missing"),
        ({"sequence": "seven"}, None, "property sequence"),
        ({"sent_at": ""}, None, "property sent_at"),
        ({"sent_at": "9300000000000000"}, None, "property sent_at"),
        ({"sent_at": "999999999999999999"}, None, "property sent_at"),
        ({}, arrow_body([event("filtered", count=2**62)]), "column count has"),
        ({}, arrow_body([event("published", bytes=-1)]), "column bytes has -1"),
        ({}, arrow_body([event("acked", offset=2**63 - 1)]), "column offset has"),
        ({"schema": "moods\0/1", "gateway": "gw\0"}, None, "'moods/1' is unknown"),
    ],
)
def test_an_unreadable_batch_is_quarantined_with_the_reason(change: Any, body: bytes | None, reason: str) -> None:
    """Invalid input must neither fail the query nor be counted."""
    properties, good = GatewayEvents().batch([event("acked")])

    found = decode(raw(properties | change, good if body is None else body, offset=3))

    (row,) = found.to_pylist()
    assert (row["table"], row["batch_offset"]) == ("quarantine", 3)
    assert reason in row["reason"]
    assert "\0" not in row["gateway"] + row["schema"] + row["reason"]


def test_a_message_with_invalid_properties_is_quarantined() -> None:
    """Any RocketMQ client may publish to a topic of that name."""
    (row,) = decode(raw({}, b"x")._replace(properties="[")).to_pylist()

    assert row["table"] == "quarantine"
