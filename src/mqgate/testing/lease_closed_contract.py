"""Lease store contract: queues that cannot be read now. Nothing of them is granted, and they lose nothing."""

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
    async def test_a_closed_queue_is_not_chosen(self, store: LeaseStore, clock: ManualClock, waited: timedelta) -> None:
        """It has the largest backlog and waits longest, so it would be chosen again and again, for nothing."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        clock.advance(waited)
        before = await position(store, group)

        chosen = await granted(store, group, closed=[QUEUE])
        nothing = await ask(store, group, closed=[QUEUE])

        assert chosen.lease.queue == OTHER
        assert not nothing.grants
        assert await position(store, group) == before

    async def test_opened_again_it_goes_on_where_it_stood(self, store: LeaseStore) -> None:
        """Its committed offset and its attempts are as they were."""
        group = a_group()
        await opened(store, group, queues(9))
        await ack(store, group, (await granted(store, group, max_count=4)).lease)
        await nack(store, group, (await granted(store, group, max_count=4)).lease)
        shut = await ask(store, group, max_count=4, closed=[QUEUE])

        again = await granted(store, group, max_count=4)

        assert not shut.grants
        assert (again.lease.start, again.lease.next, again.delivery) == (4, 8, 2)

    async def test_backlog_in_closed_queues_alone_is_busy_and_no_reason_to_hurry(self, store: LeaseStore) -> None:
        """A client learns that there is work; a gateway must not try again at once, and again."""
        group = a_group()
        await opened(store, group, queues(9, 2, 0))
        await granted(store, group)

        empty = await ask(store, group, closed=[QUEUE, OTHER], has_other_waiters=True)

        assert (empty.state, empty.next_at, empty.has_more) == (ReceiveState.BUSY, None, False)

    async def test_a_closed_queue_is_nothing_more_to_have(self, store: LeaseStore) -> None:
        """Who leaves with the last batch that can be read wakes nobody for the rest."""
        group = a_group()
        await opened(store, group, queues(9, 2))

        given = await ask(store, group, closed=[QUEUE], has_other_waiters=True)

        assert given.grants[0].lease.queue == OTHER
        assert not given.has_more
        assert given.next_at == given.grants[0].leased_until

    async def test_without_tokens_a_closed_queue_is_busy_not_rate_limited(self, store: LeaseStore) -> None:
        """No token would help."""
        group = a_group(rate_limit=RateLimit(rate=1, burst=1))
        await opened(store, group, queues(9, 1))
        await ack(store, group, (await granted(store, group, closed=[QUEUE])).lease)

        empty = await ask(store, group, closed=[QUEUE])

        assert (empty.state, empty.next_at) == (ReceiveState.BUSY, None)

    async def test_a_lease_of_a_closed_queue_is_settled_as_always(self, store: LeaseStore) -> None:
        """The consumer has the messages: what it did counts, alone or carried by a receive."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, max_count=4)
        carried = Settlement(verb=Verb.ACK, lease=first.lease)
        told = await ask(store, group, closed=[QUEUE], carrying=[carried])
        second = await granted(store, group, max_count=2)

        assert [each.outcome for each in told.settled] == [SettlementOutcome.APPLIED]
        assert not told.grants
        assert await extend(store, group, second.lease, group.visibility) is SettlementOutcome.APPLIED
        assert await ack(store, group, second.lease) is SettlementOutcome.APPLIED
        assert await committed(store, group) == 6

    async def test_what_must_die_in_a_closed_queue_waits_until_it_opens(
        self, store: LeaseStore, clock: ManualClock
    ) -> None:
        """It cannot be read for the dead letter; until it can, a late ack still saves it."""
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
        assert [each.lease.queue for each in open_again.exhausted] == [lost.lease.queue]
        assert [each.lease.queue for each in await exhausted(store, group)] == [lost.lease.queue]

    async def test_a_last_nack_carried_while_its_queue_is_closed_dooms_it_when_it_opens(
        self, store: LeaseStore
    ) -> None:
        """The nack is applied now, the dead letter is written later; in between nobody gets the message."""
        group = a_group(max_attempts=1)
        await opened(store, group, queues(9))
        last = await granted(store, group)
        nacked = Settlement(verb=Verb.NACK, lease=last.lease, reason="broken")

        shut = await ask(store, group, closed=[QUEUE], carrying=[nacked])
        open_again = await ask(store, group)

        assert [each.outcome for each in shut.settled] == [SettlementOutcome.APPLIED]
        assert (list(shut.exhausted), list(shut.grants)) == ([], [])
        assert [(each.lease.start, each.reason) for each in open_again.exhausted] == [(0, "broken")]

    async def test_an_attempt_in_a_closed_queue_is_kept_until_something_else_is_given(self, store: LeaseStore) -> None:
        """Its answer cannot be read again now; it can as soon as the queue opens."""
        group = a_group()
        await opened(store, group, queues(9))
        first = await granted(store, group, attempt="a1")

        shut = await ask(store, group, attempt="a1", closed=[QUEUE])
        again = await granted(store, group, attempt="a1")

        assert (list(shut.grants), shut.state) == ([], ReceiveState.BUSY)
        assert (again.lease, again.delivery) == (first.lease, 1)

    async def test_an_attempt_in_a_closed_queue_is_given_another_queue_and_means_that_from_then_on(
        self, store: LeaseStore
    ) -> None:
        """A repeat must not wait for a broker while there is other work; and it stays one lease an attempt."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        first = await granted(store, group, attempt="a1")

        other = await granted(store, group, attempt="a1", closed=[QUEUE])
        again = await granted(store, group, attempt="a1")

        assert (first.lease.queue, other.lease.queue) == (QUEUE, OTHER)
        assert again.lease == other.lease
        assert await ack(store, group, first.lease) is SettlementOutcome.APPLIED

    async def test_an_attempt_in_a_closed_queue_with_other_parameters_is_refused(self, store: LeaseStore) -> None:
        """It is the same bug of the client, whatever the brokers do."""
        group = a_group()
        await opened(store, group, queues(9, 2))
        await granted(store, group, attempt="a1", max_count=4)

        with pytest.raises(AttemptMismatch):
            await ask(store, group, attempt="a1", max_count=5, closed=[QUEUE])

    async def test_a_broadcast_client_is_not_given_a_closed_queue_either(self, store: LeaseStore) -> None:
        """Every client's own table goes by the same rule."""
        group = a_group(mode=Mode.BROADCAST)
        for client in ("one", "two"):
            await opened(store, group, queues(9, 2), client=client)

        shut = [(await granted(store, group, client=each, closed=[QUEUE])).lease.queue for each in ("one", "two")]
        opened_again = (await granted(store, group, client="one")).lease

        assert shut == [OTHER, OTHER]
        assert (opened_again.queue, opened_again.start) == (QUEUE, 0)
