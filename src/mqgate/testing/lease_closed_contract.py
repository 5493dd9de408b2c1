"""Lease store contract: closed queues. Nothing in them is granted, and their state does not change."""

from datetime import timedelta

import pytest

from mqgate.core.entries import Mode, RateLimit
from mqgate.core.errors import AttemptMismatch
from mqgate.core.lease import AGEING, ReceiveState, Settlement, SettlementOutcome, Verb
from mqgate.ports.lease_store import LeaseStore
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import (
    OTHER,
    QUEUE,
    ack,
    ask,
    committed,
    exhausted,
    extend,
    granted,
    nack,
    opened,
    position,
)
from mqgate.testing.samples import a_group, queues


class ClosedContract:
    @pytest.mark.parametrize("waited", [timedelta(0), AGEING], ids=["by backlog", "by age"])
    async def test_a_closed_queue_is_not_granted(
        self, store: LeaseStore, clock: ManualClock, waited: timedelta
    ) -> None:
        """It may have the largest backlog, and would be chosen again and again without effect."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        clock.advance(waited)
        before = await position(store, group)

        chosen = await granted(store, group, closed=[QUEUE])
        nothing = await ask(store, group, closed=[QUEUE])

        assert chosen.lease.queue == OTHER
        assert not nothing.grants
        assert await position(store, group) == before

    async def test_a_reopened_queue_continues_at_its_position(self, store: LeaseStore) -> None:
        """Its committed offset and its attempts must not change while it is closed."""
        group = a_group()
        await opened(store, group, queues(9))
        await ack(store, group, (await granted(store, group, max_count=4)).lease)
        await nack(store, group, (await granted(store, group, max_count=4)).lease)
        shut = await ask(store, group, max_count=4, closed=[QUEUE])

        again = await granted(store, group, max_count=4)

        assert not shut.grants
        assert (again.lease.start, again.lease.next, again.delivery) == (4, 8, 2)

    async def test_a_backlog_in_closed_queues_only_is_busy_without_a_next_instant(self, store: LeaseStore) -> None:
        """The client learns that there is work, but the gateway must not retry in a loop."""
        group = a_group()
        await opened(store, group, queues(9, 2, 0))
        await granted(store, group)

        empty = await ask(store, group, closed=[QUEUE, OTHER], has_other_waiters=True)

        assert (empty.state, empty.next_at, empty.has_more) == (ReceiveState.BUSY, None, False)

    async def test_a_closed_queue_does_not_count_as_more(self, store: LeaseStore) -> None:
        """Another parked receive must not be woken for messages that cannot be read."""
        group = a_group()
        await opened(store, group, queues(9, 2))

        given = await ask(store, group, closed=[QUEUE], has_other_waiters=True)

        assert given.grants[0].lease.queue == OTHER
        assert not given.has_more
        assert given.next_at == given.grants[0].leased_until

    async def test_a_closed_queue_is_busy_and_not_rate_limited(self, store: LeaseStore) -> None:
        """More tokens would not help."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=1))
        await opened(store, group, queues(9, 1))
        await ack(store, group, (await granted(store, group, closed=[QUEUE])).lease)

        empty = await ask(store, group, closed=[QUEUE])

        assert (empty.state, empty.next_at) == (ReceiveState.BUSY, None)

    async def test_a_lease_of_a_closed_queue_can_be_settled(self, store: LeaseStore) -> None:
        """The consumer has the messages, so its settlement must count, alone or carried by a receive."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4)
        carried = Settlement(verb=Verb.ACK, lease=first.lease)
        acquired = await ask(store, group, closed=[QUEUE], carrying=[carried])
        second = await granted(store, group, max_count=2)

        assert [result.outcome for result in acquired.settled] == [SettlementOutcome.APPLIED]
        assert not acquired.grants
        assert await extend(store, group, second.lease, group.visibility) is SettlementOutcome.APPLIED
        assert await ack(store, group, second.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 6

    async def test_an_exhausted_message_in_a_closed_queue_waits_until_it_is_open(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """It cannot be read for the dead letter. Until then a late ack must still apply."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9, 9))
        saved, lost = await granted(store, group), await granted(store, group)
        clock.advance(group.visibility)

        shut = await ask(store, group, closed=[QUEUE, OTHER])
        late = await ack(store, group, saved.lease)
        open_again = await ask(store, group)

        assert not shut.exhausted
        assert shut.state is ReceiveState.BUSY
        assert late is SettlementOutcome.LATE_APPLIED
        assert [message.lease.queue for message in open_again.exhausted] == [lost.lease.queue]
        assert [message.lease.queue for message in await exhausted(store, group)] == [lost.lease.queue]

    async def test_a_last_nack_in_a_closed_queue_exhausts_the_message_when_it_opens(self, store: LeaseStore) -> None:
        """The nack applies at once, the dead letter is written later, and no consumer gets the message in between."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await granted(store, group)
        nacked = Settlement(verb=Verb.NACK, lease=last.lease, reason="broken")

        shut = await ask(store, group, closed=[QUEUE], carrying=[nacked])
        open_again = await ask(store, group)

        assert [result.outcome for result in shut.settled] == [SettlementOutcome.APPLIED]
        assert (list(shut.exhausted), list(shut.grants)) == ([], [])
        assert [(message.lease.start, message.reason) for message in open_again.exhausted] == [(0, "broken")]

    async def test_an_attempt_in_a_closed_queue_is_kept_until_another_grant(self, store: LeaseStore) -> None:
        """Its messages cannot be read now, but again as soon as the queue opens."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, attempt="a1")

        shut = await ask(store, group, attempt="a1", closed=[QUEUE])
        again = await granted(store, group, attempt="a1")

        assert (list(shut.grants), shut.state) == ([], ReceiveState.BUSY)
        assert (again.lease, again.delivery) == (first.lease, 1)

    async def test_an_attempt_in_a_closed_queue_moves_to_another_queue(self, store: LeaseStore) -> None:
        """A repeat must not wait for a broker while there is other work, and keeps one lease per attempt."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        first = await granted(store, group, attempt="a1")

        other = await granted(store, group, attempt="a1", closed=[QUEUE])
        again = await granted(store, group, attempt="a1")

        assert (first.lease.queue, other.lease.queue) == (QUEUE, OTHER)
        assert again.lease == other.lease
        assert await ack(store, group, first.lease) is SettlementOutcome.APPLIED

    async def test_an_attempt_in_a_closed_queue_with_different_parameters_is_rejected(self, store: LeaseStore) -> None:
        """This is a bug in the client, whatever the state of the brokers."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        await granted(store, group, attempt="a1", max_count=4)

        with pytest.raises(AttemptMismatch):
            await ask(store, group, attempt="a1", max_count=5, closed=[QUEUE])

    async def test_a_broadcast_client_is_not_granted_a_closed_queue(self, store: LeaseStore) -> None:
        """The lease state of each client must follow the same rule."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("one", "two"):
            await opened(store, group, queues(9, 2), client=client)

        shut = [(await granted(store, group, client=client, closed=[QUEUE])).lease.queue for client in ("one", "two")]
        opened_again = (await granted(store, group, client="one")).lease

        assert shut == [OTHER, OTHER]
        assert (opened_again.queue, opened_again.start) == (QUEUE, 0)
