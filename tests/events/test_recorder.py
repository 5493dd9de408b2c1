"""The recorder keeps events until they are written, within its limits, and without message bodies."""

import asyncio
from datetime import UTC, datetime

import pytest

from event_log import rows_of
from mqgate.core.acked_range import AckedRange
from mqgate.core.errors import QueueUnavailable
from mqgate.core.events import EVENTS, Poll
from mqgate.core.lease import Lease, Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.message import Stored, instant
from mqgate.core.receipt import ReceiptKeys, SigningKeys
from mqgate.core.receipt_times import of_messages, stamps
from mqgate.events.encoding import encode
from mqgate.events.recorder import EventRecorder, TakenEvents
from mqgate.events.rows import PendingEvents, build_parts
from mqgate.telemetry.metrics import Metrics
from mqgate.testing.samples import a_draft, a_group

NOW = 1_700_000_000_000
AT = datetime.fromtimestamp(NOW / 1000, UTC)
GROUP = a_group()
KEYS = ReceiptKeys(SigningKeys({1: b"k" * 32}, 1))


def recorder(max_rows: int = 100, *, is_on: bool = True) -> EventRecorder:
    return EventRecorder(Metrics(), lambda: NOW, max_rows=max_rows, is_on=is_on)


def publish(events: EventRecorder, count: int) -> None:
    stored = [Stored("local:0", number, AT) for number in range(count)]
    events.published("orders", "shop", [a_draft("hello")] * count, stored)


def rows(taken: TakenEvents) -> list[dict[str, object]]:
    """Return the rows that a writer would write, without nulls."""
    parts, _ = build_parts(taken.events)
    found = [row for batch in encode(EVENTS, parts) for row in rows_of(batch.body)]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def test_rows_beyond_the_limit_are_dropped_and_counted() -> None:
    """A log that is down for an hour must not exhaust the memory of the gateway, and the loss must be visible."""
    events = recorder(max_rows=10)

    for count in (6, 5, 4, 1):
        publish(events, count)

    assert len(rows(events.take())) == 10
    assert events.dropped == 6
    assert events._metrics.events_dropped._value.get() == 6


def test_every_message_of_several_batches_keeps_its_own_row() -> None:
    """Batches are stored as columns and joined later. Values must not move to another message."""
    events = recorder()
    batches = [
        [("a", "local:0", 5, 0), ("bb", "local:1", 9, 0), ("ccc", "local:0", 6, 0)],
        [("dddd", "local:1", 10, 1), ("e", "local:1", 11, 2)],
    ]
    wanted = []
    for batch in batches:
        drafts = [a_draft(body) for body, *_ in batch]
        events.published("orders", "", drafts, [Stored(queue, at, instant(NOW + ms)) for _, queue, at, ms in batch])
        wanted += [(draft.id, len(body), *rest) for draft, (body, *rest) in zip(drafts, batch, strict=True)]

    found = rows(events.take())

    assert len({item[0] for item in wanted}) == 5
    assert [(row["id"], row["bytes"], row["queue"], row["offset"]) for row in found] == [item[:4] for item in wanted]
    assert [row["stored_at"] for row in found] == [NOW + item[4] for item in wanted]


def test_taken_rows_count_towards_the_limit_until_they_are_written() -> None:
    """Rows that are being written use memory as well."""
    events = recorder(max_rows=10)
    publish(events, 8)
    taken = events.take()

    publish(events, 3)
    events.release(taken.reserved)
    publish(events, 3)

    assert (events.dropped, events.take().reserved) == (3, 3)


def test_a_disabled_recorder_keeps_nothing() -> None:
    """Nothing would ever take the events."""
    events = recorder(is_on=False)

    publish(events, 5)
    events.polled(GROUP, "ada", Poll.EMPTY)
    events.refused("orders", "invalid_value")

    assert events.take() == TakenEvents(PendingEvents([], [], [], []), [], {}, 0)
    assert events.dropped == 0


def test_message_bodies_are_not_kept() -> None:
    """Bodies may have megabytes each, and the recorder holds up to 100,000 rows."""
    events = recorder()

    publish(events, 1)
    events.scheduled("orders", "", [a_draft("hello")], [AT])

    pending = events.take().events
    assert (len(pending.published), len(pending.others)) == (1, 1)
    assert "hello" not in str(pending)


def test_only_stored_messages_are_recorded_as_published() -> None:
    """Part of a batch may fail. The other messages must keep their own ids and sizes."""
    events = recorder()
    drafts = [a_draft("a"), a_draft("bb"), a_draft("ccc")]

    events.published(
        "orders", "", drafts, [Stored("local:0", 7, AT), QueueUnavailable("down"), Stored("local:1", 3, AT)]
    )

    found = [(row["queue"], row["offset"], row["id"], row["bytes"]) for row in rows(events.take())]
    assert found == [("local:0", 7, drafts[0].id, 1), ("local:1", 3, drafts[2].id, 3)]


def batch_of(count: int) -> Settlement:
    lease = Lease("workers", "", "local:0", 10, 10 + count, 5, "00")
    stored = [NOW - 1_000 * (count - number) for number in range(count)]
    return Settlement(Verb.ACK, lease, receipt=KEYS.sign(lease, stamps(instant(NOW - 50), stored)))


def test_the_ack_of_a_batch_is_one_row_per_committed_message() -> None:
    """Statistics count messages. An ack of a prefix must not count the rest of the batch."""
    events = recorder()
    whole, prefix = batch_of(3), batch_of(3)._replace(through=11)

    events.settled(GROUP, "ada", [whole], [SettlementResult(SettlementOutcome.APPLIED)])
    events.settled(GROUP, "ada", [prefix], [SettlementResult(SettlementOutcome.LATE_APPLIED)])

    found = [(row["offset"], row["stored_at"], row["granted_at"], row["outcome"]) for row in rows(events.take())]
    begin = NOW - 50
    assert found == [
        (10, NOW - 3_000, begin, "applied"),
        (11, NOW - 2_000, begin, "applied"),
        (12, NOW - 1_000, begin, "applied"),
        (10, NOW - 3_000, begin, "late_applied"),
        (11, NOW - 2_000, begin, "late_applied"),
    ]


def test_a_settlement_without_effect_is_refused_or_not_recorded() -> None:
    """A repeated ack is not an event. A lost or gone one counts once, whatever its batch size."""
    events = recorder()
    outcomes = [
        SettlementOutcome.APPLIED,
        SettlementOutcome.DUPLICATE,
        SettlementOutcome.LOST,
        SettlementOutcome.GONE,
        SettlementOutcome.INVALID,
    ]

    events.settled(GROUP, "", [batch_of(2)] * 5, [SettlementResult(outcome) for outcome in outcomes])

    found = [(row["kind"], row["outcome"]) for row in rows(events.take())]
    assert found == [("acked", "applied")] * 2 + [("refused", outcome) for outcome in ("lost", "gone", "invalid")]


def test_polls_are_counted_by_client_and_outcome() -> None:
    """A thousand clients that poll all day must not create an event per poll."""
    events = recorder()

    for outcome in (Poll.EMPTY, Poll.EMPTY, Poll.HIT):
        events.polled(GROUP, "ada", outcome)

    about = (GROUP.topic, GROUP.name, "ada")
    assert events.take().polls == {(*about, Poll.EMPTY): 2, (*about, Poll.HIT): 1}
    assert events.take().polls == {}


def test_the_number_of_poll_counters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can send any clientId."""
    monkeypatch.setattr("mqgate.events.recorder._MAX_POLL_KEYS", 2)
    events = recorder()

    for name in ("ada", "ben", "cleo", "ada"):
        events.polled(GROUP, name, Poll.EMPTY)

    assert sum(events.take().polls.values()) == 3
    assert events.dropped == 1


async def test_a_full_batch_wakes_the_writer_before_its_interval_ends() -> None:
    """A batch must not exceed the limits of the log, and a burst must not exceed the buffer."""
    events = recorder(max_rows=10)
    waiting = asyncio.create_task(events.wait(3600))
    await asyncio.sleep(0)

    publish(events, 5)

    async with asyncio.timeout(10):
        await waiting


@pytest.mark.parametrize("outcome", [SettlementOutcome.APPLIED, SettlementOutcome.LATE_APPLIED, SettlementOutcome.LOST])
def test_acks_of_a_whole_range_have_the_rows_of_single_acks(outcome: SettlementOutcome) -> None:
    """They are recorded as one value, and statistics must not depend on that."""
    lease = Lease(GROUP.name, "", "local:0", 10, 13, 5, "0011223344556677")
    receipts = KEYS.sign_each(lease, stamps(AT), of_messages(range(10, 13), [NOW - 3, NOW - 2, NOW - 1]))
    acked = AckedRange(lease, receipts)
    found = []
    for settlements in (acked, list(acked)):
        events = recorder()
        events.settled(GROUP, "ada", settlements, [SettlementResult(outcome)] * 3)
        found.append(rows(events.take()))

    assert found[0] == found[1]
    assert len(found[0]) == 3
