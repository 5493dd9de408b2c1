"""Lease store contract, message mode: seek, pause, retention, and what operators see."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Group
from mqgate.core.lease import (
    AcquireRequest,
    OffsetRange,
    QueueBounds,
    ReceiveState,
    Settlement,
    SettlementOutcome,
    Verb,
)
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import LONGEST_DOUBT, QUEUE, ack, ask, committed, exhausted, extend, nack, opened, position
from mqgate.testing.message_leasing import HOUR, SECOND, lag, one, placed, places, singles, taken, workers
from mqgate.testing.samples import queues


class MessageOperateContract:
    async def test_a_seek_sweeps_away_leases_failures_and_the_dying(self, store: LeaseStore) -> None:
        """From there on everything is as new, and every receipt of before is gone."""
        group = workers(max_attempts=2)
        await opened(store, group, queues(4))
        held, waiting, dying, acked = await taken(store, group)
        await ack(store, group, acked)
        await nack(store, group, waiting, delay=HOUR)
        await nack(store, group, dying)
        await nack(store, group, await one(store, group))

        moved = await store.seek(group, "", {QUEUE: 0}, is_dry_run=False)

        assert moved is not None
        assert [(each.old, each.new) for each in moved] == [(0, 0)]
        assert await lag(store, group) == (4, 0, 0)
        assert not await exhausted(store, group)
        assert [await ack(store, group, lease) for lease in (held, waiting, dying)] == [
            SettlementOutcome.GONE,
            SettlementOutcome.LOST,
            SettlementOutcome.LOST,
        ]
        assert [grant.delivery for grant in (await ask(store, group)).grants] == [1]
        assert await lag(store, group) == (0, 4, 0)

    async def test_a_dry_run_moves_nothing(self, store: LeaseStore) -> None:
        """And says what it would do."""
        group = workers()
        await opened(store, group, queues(4))
        lease = await one(store, group)
        before = await position(store, group)

        moved = await store.seek(group, "", {QUEUE: 4}, is_dry_run=True)

        assert moved is not None
        assert [(each.queue, each.old, each.new) for each in moved] == [(QUEUE, 0, 4)]
        assert await position(store, group) == before
        assert await ack(store, group, lease) is SettlementOutcome.APPLIED

    async def test_after_a_seek_the_cap_counts_from_nothing(self, store: LeaseStore) -> None:
        """Swept leases hold no places."""
        group = workers(max_in_flight=2)
        await opened(store, group, queues(4))
        await taken(store, group)
        await store.seek(group, "", {QUEUE: 1}, is_dry_run=False)

        assert places(await taken(store, group)) == [(QUEUE, 1), (QUEUE, 2)]

    async def test_pause_stops_grants_not_settlements(self, store: LeaseStore) -> None:
        """Who works finishes; nobody starts."""
        group = workers()
        await opened(store, group, queues(4))
        first, second = await taken(store, group, max_count=2)

        paused = await ask(store, workers(is_paused=True), carrying=[Settlement(verb=Verb.ACK, lease=first)])

        assert not paused.grants
        assert paused.state is ReceiveState.PAUSED
        assert [each.outcome for each in paused.settled] == [SettlementOutcome.APPLIED]
        assert await nack(store, group, second) is SettlementOutcome.APPLIED

    async def test_a_seek_counts_what_was_settled_out_of_turn(self, store: LeaseStore) -> None:
        """Whoever asks before moving a group hears how many messages it would miss, and how many come again."""
        group = workers()
        await opened(store, group, queues(8))
        leases = await taken(store, group, max_count=6)
        for offset in (0, 2, 3, 5):
            await ack(store, group, leases[offset])
        await nack(store, group, leases[4], delay=HOUR)

        counted = []
        for to in (0, 1, 3, 7, 8):
            moved = await store.seek(group, "", {QUEUE: to}, is_dry_run=True)
            assert moved is not None
            counted += [(each.old, each.skipped, each.repeated) for each in moved]

        # Of the six that were granted 1 and 4 are not settled; 6 and 7 nobody had.
        assert counted == [(1, 0, 4), (1, 0, 3), (1, 1, 2), (1, 3, 0), (1, 4, 0)]

    async def test_what_retention_took_is_skipped_and_told(self, store: LeaseStore) -> None:
        """New ones and failed ones alike; never silently."""
        group = workers()
        await opened(store, group, queues(6))
        for lease in await taken(store, group, max_count=2):
            await nack(store, group, lease)
        told = 0
        found: list[tuple[str, int]] = []

        for _ in range(4):
            acquired = await ask(store, group, bounds=queues((4, 6)))
            told += acquired.expired
            found += places(singles(acquired))

        assert found == [(QUEUE, 4), (QUEUE, 5)]
        assert told == 4
        assert await committed(store, group) == 4

    async def test_a_queue_emptied_by_retention_is_told_of_though_nothing_newer_is_there(
        self, store: LeaseStore
    ) -> None:
        """Whoever asks now hears of it now, once, and not when something is next published."""
        group = workers()
        await opened(store, group, queues(6))
        held = await taken(store, group, max_count=2)

        acquired = [await ask(store, group, bounds=queues((6, 6))) for _ in range(2)]

        assert [list(each.lost) for each in acquired] == [[OffsetRange(QUEUE, 2, 6)], []]
        assert await committed(store, group) == 0
        assert [await ack(store, group, each) for each in held] == [SettlementOutcome.APPLIED] * 2
        assert await committed(store, group) == 6

    @pytest.mark.parametrize("delay", [None, HOUR])
    async def test_what_failed_before_retention_took_it_is_not_left_and_told_at_the_next_receive(
        self, store: LeaseStore, delay: timedelta | None
    ) -> None:
        """As what nobody had yet: nobody waits out the backoff of a message that does not exist."""
        group = workers()
        await opened(store, group, queues(3))
        held, *failed = await taken(store, group)
        for lease in failed:
            await nack(store, group, lease, delay=delay)

        await store.positions(group, "", queues((3, 3)))
        left = await lag(store, group)
        told = await ask(store, group)
        await ack(store, group, held)
        after = await ask(store, group)

        assert left == (0, 1, 0)
        assert list(told.lost) == [OffsetRange(QUEUE, 1, 2), OffsetRange(QUEUE, 2, 3)]
        assert (told.grants, told.state) == ([], ReceiveState.BUSY)
        assert (after.lost, after.state, after.next_at) == ([], ReceiveState.OK, None)
        found = await position(store, group)
        assert (found.committed, found.expired) == (3, 2)

    async def test_a_lease_of_what_retention_took_lasts_and_then_it_is_expired(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Who has the message may settle it; if nobody does there is nothing to wait for, whatever the backoff."""
        group = workers(backoff=Backoff(steps=(HOUR,)))
        await opened(store, group, queues(2))
        acked, failed = await taken(store, group)

        held = await ask(store, group, bounds=queues((2, 2)))
        outcome = await ack(store, group, acked)
        clock.advance(group.visibility)
        left = await lag(store, group)
        ended = await ask(store, group)

        assert (held.lost, held.state) == ([], ReceiveState.BUSY)
        assert outcome is SettlementOutcome.APPLIED
        assert left == (0, 0, 0)
        assert (list(ended.lost), ended.state) == ([OffsetRange(QUEUE, 1, 2)], ReceiveState.OK)
        assert await ack(store, group, failed) is SettlementOutcome.GONE

    async def test_retention_takes_a_key_with_all_that_waits_behind_it(self, store: LeaseStore) -> None:
        """Ordered groups: what is left of the key goes on, what is not neither waits nor counts."""
        group = workers(is_ordered=True)
        await opened(store, group, queues(4))
        keys = dict.fromkeys(range(4), "k")
        (first,) = await placed(store, group, await ask(store, group), keys)
        await nack(store, group, first, delay=HOUR)

        await store.positions(group, "", queues((3, 4)))
        left = await lag(store, group)
        told = await ask(store, group)

        assert left == (0, 0, 1)
        assert [span.start for span in told.lost] == [0, 1, 2]
        assert places(await placed(store, group, told, keys)) == [(QUEUE, 3)]

    async def test_what_retention_took_of_a_closed_queue_is_told_when_it_opens(self, store: LeaseStore) -> None:
        """What a closed queue holds stays as it is."""
        group = workers()
        await opened(store, group, queues(1))
        await nack(store, group, await one(store, group), delay=HOUR)

        closed = await ask(store, group, bounds=queues((1, 1)), closed=[QUEUE])
        opens = await ask(store, group)

        assert (closed.expired, opens.expired) == (0, 1)

    async def test_a_receipt_of_what_retention_took_is_gone(self, store: LeaseStore, clock: ManualClock) -> None:
        """Nobody else had it, nobody finished it: not lost to anybody."""
        group = workers()
        await opened(store, group, queues(1))
        (lease,) = await taken(store, group)
        clock.advance(group.visibility)

        acquired = await ask(store, group, bounds=queues((1, 1)))

        assert acquired.expired == 1
        assert await ack(store, group, lease) is SettlementOutcome.GONE
        assert await nack(store, group, lease) is SettlementOutcome.GONE

    async def test_a_queue_that_came_back_shorter_is_read_from_its_first_message(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Recreated: reported, never silently at its end; old receipts are gone."""
        group = workers()
        await opened(store, group, queues(5))
        leases = await taken(store, group)
        clock.advance(LONGEST_DOUBT)

        acquired = await ask(store, group, bounds=queues(2))

        assert acquired.rewound == 5
        assert places(singles(acquired)) == [(QUEUE, 0), (QUEUE, 1)]
        assert await ack(store, group, leases[4]) is SettlementOutcome.GONE

    async def test_a_crowded_receive_tells_whether_more_is_ready_and_when_something_will_be(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Others are parked: whoever leaves with messages must tell what the next one waits for."""
        group = workers(visibility=HOUR)
        await opened(store, group, queues(3))
        await nack(store, group, await one(store, group), delay=10 * SECOND)

        more = await store.acquire(_crowded(group, 1))
        last = await store.acquire(_crowded(group, 1))

        assert (more.has_more, last.has_more) == (True, False)
        assert last.next_at == clock.now + 10 * SECOND

    async def test_operators_see_who_holds_messages_of_which_queue(self, store: LeaseStore) -> None:
        """And only while they hold them."""
        group = workers()
        await opened(store, group, queues(1, 1))
        leases = await taken(store, group, polled_by="ada")
        await taken(store, group, polled_by="bob")
        await ack(store, group, leases[0])

        holds = {client.name: list(client.holds) for client in await store.clients(group.name)}

        assert holds == {"ada": [leases[1].queue], "bob": []}

    async def test_who_holds_one_message_of_a_grant_holds_its_queue(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """Though another one's lease ended, and nobody has looked since; and no longer than that."""
        group = workers()
        await opened(store, group, queues(2))
        leases = await taken(store, group, polled_by="ada", visibility=SECOND)
        await extend(store, group, leases[1], 60 * SECOND)
        seen = []

        for seconds in (0, 1.2, 60):
            clock.advance(seconds)
            seen += [list(client.holds) for client in await store.clients(group.name)]

        assert seen == [[QUEUE], [QUEUE], []]


def _crowded(group: Group, max_count: int, bounds: Mapping[str, QueueBounds] | None = None) -> AcquireRequest:
    return AcquireRequest(
        group=group,
        client="",
        max_count=max_count,
        visibility=group.visibility,
        bounds=bounds or {},
        has_other_waiters=True,
    )
