"""The recorder: what is noted is kept until it is written, within its bounds, and without the messages."""

import asyncio
from datetime import UTC, datetime

import pytest

from event_log import rows_of
from mqgate.core.errors import QueueUnavailable
from mqgate.core.events import EVENTS, Poll
from mqgate.core.lease import Lease, Settlement, SettlementOutcome, SettlementResult, Verb
from mqgate.core.message import Stored, instant
from mqgate.core.receipt import ReceiptKeys, SigningKeys
from mqgate.core.receipt_times import stamps
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


def publish(noting: EventRecorder, count: int) -> None:
    stored = [Stored("local:0", number, AT) for number in range(count)]
    noting.published("orders", "shop", [a_draft("hello")] * count, stored)


def rows(taken: TakenEvents) -> list[dict[str, object]]:
    """What a writer makes of it; without what is None."""
    parts, _ = build_parts(taken.events)
    found = [row for batch in encode(EVENTS, parts) for row in rows_of(batch.body)]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    """A log that takes nothing for an hour must not cost the gateway its memory; and it must not be a secret."""
    noting = recorder(max_rows=10)

    for count in (6, 5, 4, 1):
        publish(noting, count)

    assert len(rows(noting.take())) == 10
    assert noting.dropped == 6
    assert noting._metrics.events_dropped._value.get() == 6


def test_every_message_of_several_batches_keeps_its_own_row() -> None:
    """Batches are noted as columns and joined later: ids, sizes, places and times must not change hands."""
    noting = recorder()
    told = [
        [("a", "local:0", 5, 0), ("bb", "local:1", 9, 0), ("ccc", "local:0", 6, 0)],
        [("dddd", "local:1", 10, 1), ("e", "local:1", 11, 2)],
    ]
    wanted = []
    for batch in told:
        drafts = [a_draft(body) for body, *_ in batch]
        noting.published("orders", "", drafts, [Stored(queue, at, instant(NOW + ms)) for _, queue, at, ms in batch])
        wanted += [(draft.id, len(body), *rest) for draft, (body, *rest) in zip(drafts, batch, strict=True)]

    found = rows(noting.take())

    assert len({each[0] for each in wanted}) == 5
    assert [(row["id"], row["bytes"], row["queue"], row["offset"]) for row in found] == [each[:4] for each in wanted]
    assert [row["stored_at"] for row in found] == [NOW + each[4] for each in wanted]


def test_room_is_held_until_what_was_taken_is_written() -> None:
    """Rows on their way take memory as well."""
    noting = recorder(max_rows=10)
    publish(noting, 8)
    taken = noting.take()

    publish(noting, 3)
    noting.release(taken.reserved)
    publish(noting, 3)

    assert (noting.dropped, noting.take().reserved) == (3, 3)


def test_a_recorder_that_is_off_keeps_nothing() -> None:
    """Nobody would ever take it."""
    noting = recorder(is_on=False)

    publish(noting, 5)
    noting.polled(GROUP, "ada", Poll.EMPTY)
    noting.refused("orders", "invalid_value")

    assert noting.take() == TakenEvents(PendingEvents([], [], [], []), [], {}, 0)
    assert noting.dropped == 0


def test_no_message_is_kept() -> None:
    """Bodies may have megabytes each: a hundred thousand of them would be the end."""
    noting = recorder()

    publish(noting, 1)
    noting.scheduled("orders", "", [a_draft("hello")], [AT])

    notes = noting.take().events
    assert (len(notes.published), len(notes.others)) == (1, 1)
    assert "hello" not in str(notes)


def test_a_message_that_was_not_stored_was_not_published() -> None:
    """Of a batch some may fail, because their queue is down; the others keep their own ids and sizes."""
    noting = recorder()
    drafts = [a_draft("a"), a_draft("bb"), a_draft("ccc")]

    noting.published(
        "orders", "", drafts, [Stored("local:0", 7, AT), QueueUnavailable("down"), Stored("local:1", 3, AT)]
    )

    told = [(row["queue"], row["offset"], row["id"], row["bytes"]) for row in rows(noting.take())]
    assert told == [("local:0", 7, drafts[0].id, 1), ("local:1", 3, drafts[2].id, 3)]


def batch_of(count: int) -> Settlement:
    lease = Lease("workers", "", "local:0", 10, 10 + count, 5, "00")
    stored = [NOW - 1_000 * (count - number) for number in range(count)]
    return Settlement(Verb.ACK, lease, receipt=KEYS.sign(lease, stamps(instant(NOW - 50), stored)))


def test_the_ack_of_a_batch_is_one_row_for_each_message_that_it_committed() -> None:
    """With the times of its receipt; of a prefix, only those in it."""
    noting = recorder()
    whole, prefix = batch_of(3), batch_of(3)._replace(through=11)

    noting.settled(GROUP, "ada", [whole], [SettlementResult(SettlementOutcome.APPLIED)])
    noting.settled(GROUP, "ada", [prefix], [SettlementResult(SettlementOutcome.LATE_APPLIED)])

    told = [(row["offset"], row["stored_at"], row["granted_at"], row["outcome"]) for row in rows(noting.take())]
    begin = NOW - 50
    assert told == [
        (10, NOW - 3_000, begin, "applied"),
        (11, NOW - 2_000, begin, "applied"),
        (12, NOW - 1_000, begin, "applied"),
        (10, NOW - 3_000, begin, "late_applied"),
        (11, NOW - 2_000, begin, "late_applied"),
    ]


def test_a_settlement_that_changed_nothing_is_refused_or_no_news() -> None:
    """Repeating an ack is fine; one that is lost or gone is not, and counts once, however large its batch."""
    noting = recorder()
    outcomes = [
        SettlementOutcome.APPLIED,
        SettlementOutcome.DUPLICATE,
        SettlementOutcome.LOST,
        SettlementOutcome.GONE,
        SettlementOutcome.INVALID,
    ]

    noting.settled(GROUP, "", [batch_of(2)] * 5, [SettlementResult(each) for each in outcomes])

    told = [(row["kind"], row["outcome"]) for row in rows(noting.take())]
    assert told == [("acked", "applied")] * 2 + [("refused", each) for each in ("lost", "gone", "invalid")]


def test_polls_are_counted_by_who_polled_and_how_it_ended() -> None:
    """A thousand clients that wait all day are a number each, not an event each."""
    noting = recorder()

    for outcome in (Poll.EMPTY, Poll.EMPTY, Poll.HIT):
        noting.polled(GROUP, "ada", outcome)

    about = (GROUP.topic, GROUP.name, "ada")
    assert noting.take().polls == {(*about, Poll.EMPTY): 2, (*about, Poll.HIT): 1}
    assert noting.take().polls == {}


def test_pollers_with_ever_new_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clientId is whatever a client says."""
    monkeypatch.setattr("mqgate.events.recorder._MAX_POLL_KEYS", 2)
    noting = recorder()

    for name in ("ada", "ben", "cleo", "ada"):
        noting.polled(GROUP, name, Poll.EMPTY)

    assert sum(noting.take().polls.values()) == 3
    assert noting.dropped == 1


async def test_many_rows_are_worth_writing_before_it_is_time() -> None:
    """So that a batch does not outgrow what a log takes, and a burst finds room."""
    noting = recorder(max_rows=10)
    waiting = asyncio.create_task(noting.wait(3600))
    await asyncio.sleep(0)

    publish(noting, 5)

    async with asyncio.timeout(10):
        await waiting
