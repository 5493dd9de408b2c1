"""The contract of message logs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from mqgate.core.errors import InvalidValue, QueueNotFound, TopicNotFound
from mqgate.core.lease import QueueBounds
from mqgate.core.message import Draft, Message, Stored, milliseconds
from mqgate.ports.message_log import MessageLog
from mqgate.testing.clock import NOON
from mqgate.testing.message_columns_contract import ColumnsContract
from mqgate.testing.samples import a_draft, queues

__all__ = ["MessageLogContract"]

_TOPIC = "orders"
_QUEUE = "local:0"
_LARGE = 1 << 20
_MAX_DIFFERENCE_MS = 10_000
_CENTURY = timedelta(days=36_500)
Reopen = Callable[[], Awaitable[MessageLog]]
Tick = Callable[[], None]


async def _all(log: MessageLog, topic: str = _TOPIC) -> list[Message]:
    """Return all messages of a topic, queue by queue."""
    found: list[Message] = []
    for queue, (first, end) in (await log.bounds(topic)).queues.items():
        offset = first
        while offset < end:
            page = await log.read(topic, queue, offset, 100, _LARGE)
            assert page, f"{queue} has no message at offset {offset}, which is within its bounds"
            found += page
            offset += len(page)
    return found


async def _stored(log: MessageLog, drafts: Sequence[Draft]) -> list[Stored]:
    """Append messages, all of which must be stored, and return where."""
    outcomes = await log.append(_TOPIC, drafts)
    stored = [outcome for outcome in outcomes if isinstance(outcome, Stored)]
    assert len(stored) == len(drafts), outcomes
    return stored


async def _seen(log: MessageLog, stored: Sequence[Stored]) -> list[Message]:
    """Return messages as a reader sees them."""
    return [message for place in stored for message in await log.read(_TOPIC, place.queue, place.offset, 1, _LARGE)]


class MessageLogContract(ColumnsContract):
    """Tests of a message log. An adapter provides these fixtures.

    `log`: a log without topics whose one broker is named `local`.
    `reopen`: closes that log and opens it again, as a restart does.
    `tick`: advances the clock of the log by at least a millisecond.
    `clock_difference`: the largest difference between the store time that append returns and the one that readers see.
    A broker does not return the time that it stored.
    """

    clock_difference = timedelta(0)

    async def test_stored_messages_are_read_unchanged(self, log: MessageLog) -> None:
        """Invariant 2: id, body, key, tag and properties belong to the publisher."""
        await log.create(_TOPIC, 1)
        draft = a_draft(bytes(range(256)), key="ключ", tag="é", properties={"a": "1", "ü": "\x00 \t\n"})

        (stored,) = await _stored(log, [draft])
        (found,) = await log.read(_TOPIC, stored.queue, stored.offset, 1, _LARGE)

        assert (found.id, found.body, found.key, found.tag) == (draft.id, draft.body, draft.key, draft.tag)
        assert dict(found.properties) == dict(draft.properties)
        assert (found.topic, found.queue, found.offset) == (_TOPIC, stored.queue, stored.offset)
        assert abs(found.stored_at - stored.stored_at) <= self.clock_difference

    async def test_producer_and_group_names_do_not_affect_messages(self, log: MessageLog) -> None:
        """They are passed to the broker for its own statistics."""
        await log.create(_TOPIC, 1)

        named = await log.append(_TOPIC, [a_draft("named")], "shop")
        plain = await log.append(_TOPIC, [a_draft("plain")])
        found = [await log.read(_TOPIC, _QUEUE, 0, 10, _LARGE, group) for group in ("", "workers", "others")]

        assert [message.offset for message in (*named, *plain) if isinstance(message, Stored)] == [0, 1]
        assert [[message.body for message in messages] for messages in found] == [[b"named", b"plain"]] * 3

    async def test_no_queue_is_closed_while_all_are_readable(self, log: MessageLog) -> None:
        """A queue that is reported as closed is not consumed."""
        await log.create(_TOPIC, 2)
        bounds = await log.bounds(_TOPIC)

        assert bounds.closed == frozenset()
        assert (await log.bounds(_TOPIC, bounds.version)).closed == frozenset()

    async def test_offsets_are_dense_and_in_call_order(self, log: MessageLog) -> None:
        """Invariant 3."""
        await log.create(_TOPIC, 2)

        first = await _stored(log, [a_draft(f"{n}", queue=n % 2) for n in range(10)])
        second = await _stored(log, [a_draft(f"{n}", queue=n % 2) for n in range(10, 14)])

        offsets = [message.offset for message in (*first, *second)]
        assert offsets == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
        found = await log.read(_TOPIC, _QUEUE, 0, 100, _LARGE)
        assert [message.body for message in found] == [b"0", b"2", b"4", b"6", b"8", b"10", b"12"]

    async def test_a_slot_selects_the_queue_modulo_the_queue_count(self, log: MessageLog) -> None:
        """Messages of one key must stay in one queue while the number of queues is unchanged."""
        await log.create(_TOPIC, 3)

        stored = await _stored(log, [a_draft(queue=slot) for slot in (0, 1, 2, 3, 4_294_967_295)])

        assert [message.queue for message in stored] == ["local:0", "local:1", "local:2", "local:0", "local:0"]

    async def test_messages_without_a_slot_are_spread_over_all_queues(self, log: MessageLog) -> None:
        """Without keys the load must be balanced."""
        await log.create(_TOPIC, 4)

        stored = [(await _stored(log, [a_draft()]))[0] for _ in range(64)]

        assert {message.queue for message in stored} == {"local:0", "local:1", "local:2", "local:3"}

    async def test_concurrent_appends_share_no_offset_and_lose_nothing(self, log: MessageLog) -> None:
        """Group commit must return the right offset to each caller."""
        await log.create(_TOPIC, 2)
        drafts = [[a_draft(f"{call}-{n}", queue=call) for n in range(call % 5 + 1)] for call in range(60)]

        stored = await asyncio.gather(*(_stored(log, draft) for draft in drafts))

        places: dict[tuple[str, int], bytes] = {}
        for sent, kept in zip(drafts, stored, strict=True):
            own = [place.offset for place in kept]
            assert own == sorted(own)
            places |= {(place.queue, place.offset): draft.body for draft, place in zip(sent, kept, strict=True)}
        assert len(places) == sum(map(len, drafts))
        assert {(message.queue, message.offset): message.body for message in await _all(log)} == places
        for queue, bounds in (await log.bounds(_TOPIC)).queues.items():
            assert sorted(offset for name, offset in places if name == queue) == list(range(bounds.max))

    async def test_stored_messages_survive_a_restart(self, log: MessageLog, reopen: Reopen) -> None:
        """A 2xx response means that the message is stored."""
        await log.create(_TOPIC, 1)
        kept = await _stored(log, [a_draft(f"{n}") for n in range(5)])
        before = await _all(log)

        again = await reopen()
        (following,) = await _stored(again, [a_draft("after")])

        assert [message.offset for message in kept] == [0, 1, 2, 3, 4]
        assert (await _all(again))[:5] == before
        assert following.offset == 5

    async def test_a_read_stops_at_max_count_and_at_the_end(self, log: MessageLog) -> None:
        """The end of a queue is not an error."""
        await log.create(_TOPIC, 1)
        await log.append(_TOPIC, [a_draft(f"{n}") for n in range(5)])

        sizes = [len(await log.read(_TOPIC, _QUEUE, offset, max_count, _LARGE)) for offset, max_count in
                 ((0, 3), (3, 3), (4, 1), (5, 3), (1_000, 3))]  # fmt: skip

        assert sizes == [3, 2, 1, 0, 0]

    async def test_a_read_stays_within_its_queue(self, log: MessageLog) -> None:
        """Messages of the next queue belong to another consumer."""
        await log.create(_TOPIC, 2)
        await log.append(_TOPIC, [a_draft("mine", queue=0), a_draft("other", queue=1)])

        found = await log.read(_TOPIC, _QUEUE, 0, 1_000, _LARGE)

        assert [message.body for message in found] == [b"mine"]

    async def test_max_bytes_limits_a_read_to_at_least_one_message(self, log: MessageLog) -> None:
        """A message that exceeds the response size must still be deliverable."""
        await log.create(_TOPIC, 1)
        await log.append(_TOPIC, [a_draft(b"x" * size) for size in (500, 10, 10, 500)])

        bodies = [
            [len(message.body) for message in await log.read(_TOPIC, _QUEUE, offset, 10, max_bytes)]
            for offset, max_bytes in ((0, 1), (0, 510), (1, 20), (1, 10_000))
        ]

        assert bodies == [[500], [500, 10], [10, 10], [10, 10, 500]]

    async def test_bounds_contain_every_queue(self, log: MessageLog) -> None:
        """The lease store chooses queues by their bounds."""
        await log.create(_TOPIC, 2)
        await log.append(_TOPIC, [a_draft(queue=1)] * 3)

        bounds = await log.bounds(_TOPIC)
        now = await log.current_bounds(_TOPIC)

        assert bounds.queues == queues(0, 3)
        assert now.queues == queues(0, 3)

    async def test_bounds_since_a_version_contain_only_changed_queues(self, log: MessageLog) -> None:
        """The cost must not depend on the number of unchanged queues."""
        await log.create(_TOPIC, 3)
        await log.append(_TOPIC, [a_draft(queue=0)])
        before = await log.bounds(_TOPIC)

        nothing = await log.bounds(_TOPIC, before.version)
        await log.append(_TOPIC, [a_draft(queue=2)])
        moved = await log.bounds(_TOPIC, before.version)
        after = await log.bounds(_TOPIC, moved.version)

        assert nothing.queues == {}
        assert moved.queues == {"local:2": QueueBounds(0, 1)}
        assert after.queues == {}

    async def test_bounds_contain_the_time_of_the_last_append(self, log: MessageLog) -> None:
        """The lease store needs it to age queues. Queues without messages have none."""
        await log.create(_TOPIC, 3)
        (first,) = await log.append(_TOPIC, [a_draft(queue=0)])
        (last,) = await log.append(_TOPIC, [a_draft(queue=2)])

        last_append_ms = (await log.current_bounds(_TOPIC)).last_append_ms

        assert isinstance(first, Stored)
        assert isinstance(last, Stored)
        assert last_append_ms.keys() == {first.queue, last.queue}
        # A broker may report it by its own clock.
        for message in (first, last):
            assert abs(last_append_ms[message.queue] - milliseconds(message.stored_at)) < _MAX_DIFFERENCE_MS

    async def test_a_stored_message_is_visible_in_current_bounds(self, log: MessageLog) -> None:
        """After a 2xx response a receive must not find the queue empty."""
        await log.create(_TOPIC, 1)

        for number in range(20):
            await log.append(_TOPIC, [a_draft(f"{number}")])

            assert (await log.bounds(_TOPIC)).queues[_QUEUE].max == number + 1
            assert len(await log.read(_TOPIC, _QUEUE, number, 1, 1)) == 1

    async def test_offsets_at_returns_the_first_offset_at_or_after_an_instant(
        self, log: MessageLog, tick: Tick
    ) -> None:
        """Groups start and seek by time. Without such a message it is the end of the queue."""
        await log.create(_TOPIC, 2)
        kept: list[Message] = []
        for queue in (0, 0, 1, 0):
            kept += await _seen(log, await _stored(log, [a_draft(queue=queue)]))
            tick()

        at_each = [await log.offsets_at(_TOPIC, message.stored_at) for message in kept]
        long_ago = await log.offsets_at(_TOPIC, kept[0].stored_at - _CENTURY)
        far_ahead = await log.offsets_at(_TOPIC, kept[0].stored_at + _CENTURY)

        assert at_each == [
            {"local:0": 0, "local:1": 0},
            {"local:0": 1, "local:1": 0},
            {"local:0": 2, "local:1": 0},
            {"local:0": 2, "local:1": 1},
        ]
        assert long_ago == {"local:0": 0, "local:1": 0}
        assert far_ahead == {"local:0": 3, "local:1": 1}

    async def test_store_times_never_decrease_along_a_queue(self, log: MessageLog, tick: Tick) -> None:
        """Lookup by time is a binary search and relies on this."""
        await log.create(_TOPIC, 1)
        for number in range(10):
            await log.append(_TOPIC, [a_draft()])
            if number % 3 == 0:
                tick()

        times = [message.stored_at for message in await _all(log)]

        assert times == sorted(times)

    async def test_a_message_is_found_by_its_id_in_its_topic_only(self, log: MessageLog) -> None:
        """The id of a message must not give access to it through another topic."""
        await log.create(_TOPIC, 2)
        await log.create("other", 2)
        draft = a_draft("needle")
        await log.append(_TOPIC, [a_draft(), draft, a_draft()])

        found = await log.find(_TOPIC, draft.id)

        assert found is not None
        assert (found.id, found.body) == (draft.id, b"needle")
        assert await log.find("other", draft.id) is None
        assert await log.find(_TOPIC, "0" * 32) is None

    async def test_of_several_messages_with_one_id_the_first_is_found(self, log: MessageLog) -> None:
        """Two stored copies of a message are still that one message."""
        await log.create(_TOPIC, 1)
        draft = a_draft("first")
        await log.append(_TOPIC, [draft, draft._replace(body=b"second")])

        found = await log.find(_TOPIC, draft.id)

        assert found is not None
        assert found.offset == 0

    @pytest.mark.parametrize("key", ["red", None])
    async def test_pages_of_a_key_search_contain_every_message_once(self, log: MessageLog, key: str | None) -> None:
        """Every page must continue where the previous one ended."""
        await log.create(_TOPIC, 3)
        await log.create("other", 1)
        colours = ["red", "blue", "red", "red", None, "blue", "red", "red"]
        drafts = [a_draft(f"{n}", queue=n, key=colour) for n, colour in enumerate(colours)]
        await log.append(_TOPIC, drafts)
        await log.append("other", [a_draft("foreign", key="red")])
        span = {"since": NOON - _CENTURY, "until": NOON + _CENTURY}

        pages: list[int] = []
        found: list[str] = []
        after: str | None = None
        while True:
            page, after = await log.find_by_key(_TOPIC, key, limit=2, after=after, **span)
            pages.append(len(page))
            found += [message.id for message in page]
            if after is None:
                break

        wanted = [draft.id for draft in drafts if key is None or draft.key == key]
        assert sorted(found) == sorted(wanted)
        assert pages == ([2, 2, 1] if key else [2, 2, 2, 2])

    @pytest.mark.parametrize("key", ["red", None])
    @pytest.mark.parametrize("cursor", ["", "1 2", "x", "-1", "1 nowhere:0 1", "1 local:0 x", "9" * 30, "\u0661"])
    async def test_an_invalid_cursor_is_rejected(self, log: MessageLog, key: str | None, cursor: str) -> None:
        """Cursors come from clients, so a bad one must not be an internal error."""
        await log.create(_TOPIC, 1)
        span = {"since": NOON - _CENTURY, "until": NOON + _CENTURY}

        with pytest.raises(InvalidValue) as refusal:
            await log.find_by_key(_TOPIC, key, limit=2, after=cursor, **span)

        assert refusal.value.members["field"] == "cursor"

    @pytest.mark.parametrize("key", ["two words", " before", "behind ", "  ", " "])
    async def test_a_key_with_spaces_is_found(self, log: MessageLog, key: str) -> None:
        """The index of a broker treats spaces as separators of keys."""
        await log.create(_TOPIC, 1)
        keys = ["two words", " before", "behind ", "  ", " ", "before", "two", "behind", None]
        drafts = [a_draft(f"{number}", queue=0, key=key) for number, key in enumerate(keys)]
        await log.append(_TOPIC, drafts)
        await log.find(_TOPIC, drafts[-1].id)

        found, _ = await log.find_by_key(
            _TOPIC, key, since=NOON - _CENTURY, until=NOON + _CENTURY, limit=10, after=None
        )

        assert [message.body for message in found] == [str(keys.index(key)).encode()]

    @pytest.mark.parametrize("key", ["red", None])
    async def test_a_search_includes_its_start_and_excludes_its_end(
        self, log: MessageLog, tick: Tick, key: str | None
    ) -> None:
        """Adjacent searches must neither overlap nor leave a gap."""
        await log.create(_TOPIC, 2)
        kept: list[Message] = []
        for number in range(4):
            kept += await _seen(log, await _stored(log, [a_draft(f"{number}", queue=number, key="red")]))
            tick()

        found, more = await log.find_by_key(
            _TOPIC, key, since=kept[1].stored_at, until=kept[3].stored_at, limit=10, after=None
        )

        assert sorted(message.body for message in found) == [b"1", b"2"]
        assert more is None

    async def test_create_adds_queues_and_never_removes_any(self, log: MessageLog) -> None:
        """A repeated call must change nothing."""
        await log.create(_TOPIC, 2)
        await log.append(_TOPIC, [a_draft(queue=1)])
        before = await log.bounds(_TOPIC)

        await log.create(_TOPIC, 2)
        repeated = (await log.bounds(_TOPIC)).queues
        await log.create(_TOPIC, 4)
        grown = await log.bounds(_TOPIC, before.version)
        await log.create(_TOPIC, 1)
        not_shrunk = (await log.bounds(_TOPIC)).queues

        assert repeated == queues(0, 1)
        assert grown.queues == {"local:2": QueueBounds(0, 0), "local:3": QueueBounds(0, 0)}
        assert not_shrunk == queues(0, 1, 0, 0)

    async def test_drop_deletes_a_topic_with_its_messages(self, log: MessageLog, reopen: Reopen) -> None:
        """A topic that is created again with the same name must be empty, also after a restart."""
        await log.create(_TOPIC, 1)
        (draft,) = drafts = [a_draft()]
        await log.append(_TOPIC, drafts)

        await log.drop(_TOPIC)
        await log.drop(_TOPIC)
        with pytest.raises(TopicNotFound):
            await log.bounds(_TOPIC)
        await log.create(_TOPIC, 1)
        again = await reopen()

        assert (await again.bounds(_TOPIC)).queues == queues(0)
        assert await again.find(_TOPIC, draft.id) is None
        assert [message.offset for message in await _stored(again, [a_draft()])] == [0]

    async def test_unknown_topics_and_queues_raise_not_found(self, log: MessageLog) -> None:
        """A misspelled name must neither return an empty result nor be an internal error."""
        await log.create(_TOPIC, 1)

        with pytest.raises(TopicNotFound):
            await log.append("nowhere", [a_draft()])
        with pytest.raises(TopicNotFound):
            await log.read("nowhere", _QUEUE, 0, 1, 1)
        with pytest.raises(TopicNotFound):
            await log.current_bounds("nowhere")
        with pytest.raises(TopicNotFound):
            await log.offsets_at("nowhere", NOON)
        with pytest.raises(QueueNotFound):
            await log.read(_TOPIC, "local:1", 0, 1, 1)

    async def test_a_topic_is_known_missing_only_until_it_is_created(self, log: MessageLog) -> None:
        """The check does no I/O. It may miss a missing topic, but must never report an existing one."""
        with pytest.raises(TopicNotFound):
            await log.bounds(_TOPIC)
        before = log.is_known_missing(_TOPIC)
        await log.create(_TOPIC, 1)
        between = log.is_known_missing(_TOPIC)
        await log.drop(_TOPIC)

        assert (before, between, log.is_known_missing(_TOPIC)) == (True, False, True)

    async def test_an_append_to_a_topic_that_is_being_dropped_fails_alone(self, log: MessageLog) -> None:
        """Concurrent publishes to other topics must not be affected."""
        await log.create(_TOPIC, 1)
        await log.create("other", 1)

        dropped, late, unharmed = await asyncio.gather(
            log.drop(_TOPIC),
            log.append(_TOPIC, [a_draft()]),
            log.append("other", [a_draft()]),
            return_exceptions=True,
        )

        assert dropped is None
        assert isinstance(late, TopicNotFound)
        assert isinstance(unharmed, list)
        assert (await log.bounds("other")).queues == queues(1)
