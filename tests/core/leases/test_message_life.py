"""The life of a message: every step of the core changes its state as the table says."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from mqgate.core.backoff import Backoff
from mqgate.core.entries import Group
from mqgate.core.lease import AcquireRequest, Grant, PullReport, QueueBounds, Settlement, Verb
from mqgate.core.leases import message
from mqgate.core.leases.message_state import MessageScope
from mqgate.core.leases.outcomes import LIFE, MessageEvent, MessageState
from mqgate.core.tokens import GroupTokens
from mqgate.testing.message_leasing import workers

QUEUE, MESSAGES = "local:0", 12
VISIBILITY, BACKOFF = 1_000, 300
FAILED = {MessageEvent.FAIL, MessageEvent.FAIL_LAST}
OTHERS = {MessageEvent.LIMIT, MessageEvent.EXPIRE, MessageEvent.BEHIND_KEY}
SECOND = timedelta(milliseconds=VISIBILITY)


class Life:
    """One queue of one group. After each step, the state of every message is compared with that before."""

    def __init__(self, seed: int, *, is_ordered: bool) -> None:
        self.dice = random.Random(seed)
        self.now = 10_000
        self.group = self._group(max_attempts=3, is_ordered=is_ordered)
        self.scope = MessageScope("workers", "inc", GroupTokens(), 0, 0)
        self.scope.open(QUEUE, 0, QueueBounds(0, MESSAGES), self.now)
        self.grants: list[Grant] = []
        self.seen: set[tuple[MessageState, MessageEvent]] = set()

    def _group(self, **changes: object) -> Group:
        return workers(backoff=Backoff(steps=(timedelta(milliseconds=BACKOFF),)), visibility=SECOND, **changes)

    def state_of(self, offset: int) -> MessageState:
        queue = self.scope.queues[QUEUE]
        failed = queue.failed.get(offset)
        if any(grant.is_open(offset) for grant in self.scope.grants.values()):
            return MessageState.LEASED
        if failed is not None and failed.dying:
            return MessageState.EXHAUSTED
        if failed is not None:
            is_ready = failed.ready_at is not None and failed.ready_at <= self.now
            return MessageState.READY if is_ready else MessageState.WAITING
        return MessageState.READY if offset >= queue.cursor else MessageState.SETTLED

    def step(self, act: Callable[[], object], *events: MessageEvent) -> None:
        before = [self.state_of(offset) for offset in range(MESSAGES)]
        act()
        for offset, state in enumerate(before):
            self.check(state, self.state_of(offset), events)

    def check(self, before: MessageState, after: MessageState, events: Sequence[MessageEvent]) -> None:
        if before is after:
            return
        taken = [event for event in events if LIFE.get((before, event)) is after]
        assert taken, f"{before} became {after} by {events}"
        self.seen.add((before, taken[0]))

    def receive(self) -> None:
        request = AcquireRequest(self.group, "", self.dice.randint(1, 4), SECOND, {})
        self.grants += message.acquire(self.scope, request, self.now).grants

    def report(self) -> None:
        """Report the newest pull: what it found, which keys, and what a filter dropped."""
        grant = self.grants[-1]
        kept = {offset: "ab"[offset % 2] for offset in range(MESSAGES) if self.dice.random() < 0.8}
        after = self.dice.randint(grant.lease.start, grant.lease.next)
        message.report_pulls(self.scope, self.group, [PullReport(grant, after, kept)], self.now)

    def settle(self, verb: Verb) -> None:
        lease = self.dice.choice(self.grants).lease
        offset = self.dice.randrange(lease.start, lease.next)
        single = Settlement(verb, lease._replace(start=offset, next=offset + 1))
        message.settle(self.scope, self.group, [single], self.now)

    def bury(self) -> None:
        _, exhausted = message.positions(self.scope, self.group, {}, self.now)
        for each in exhausted:
            message.settle_dead(self.scope, self.group, each, self.now, is_expired=False)

    def pass_time(self) -> None:
        """Let time pass: until the next lease expires, and then until the next backoff ends."""
        self.now += self.dice.choice([BACKOFF, VISIBILITY])

    def play(self) -> None:
        due, fail = MessageEvent.DUE, (MessageEvent.FAIL, MessageEvent.FAIL_LAST)
        for _ in range(60):
            choice = self.dice.randrange(7)
            # A lease that expired and whose backoff ended before anybody looked takes two events at once.
            self.step(self.pass_time, due)
            self.step(lambda: message.positions(self.scope, self.group, {}, self.now), *fail, MessageEvent.RELEASE)
            if choice == 0:
                self.step(self.bury, MessageEvent.DEAD_LETTER, due)
            elif choice <= 2 or not self.grants:
                self.step(self.receive, MessageEvent.GRANT)
                if self.grants:
                    events = MessageEvent.RELEASE, MessageEvent.FILTER, MessageEvent.BEHIND_KEY, due
                    self.step(self.report, *events)
            elif choice == 3:
                self.step(lambda: self.settle(Verb.NACK), *fail)
            elif choice == 4:
                self.step(lambda: self.settle(Verb.EXTEND), MessageEvent.EXTEND)
            else:
                self.step(lambda: self.settle(Verb.ACK), MessageEvent.ACK, due)


@pytest.mark.parametrize("is_ordered", [False, True], ids=["plain", "ordered"])
def test_every_step_follows_the_table(is_ordered: bool) -> None:
    """The diagram of semantics.md is drawn from the table, and must show what the code does."""
    seen: set[tuple[MessageState, MessageEvent]] = set()
    for seed in range(200):
        life = Life(seed, is_ordered=is_ordered)
        life.play()
        seen |= life.seen

    # maxAttempts and retention do not change here, and late failures are seldom the last ones.
    expected = {(state, event) for (state, event), after in LIFE.items() if after is not state and event not in OTHERS}
    assert {(state, event) for state, event in expected - seen if event not in FAILED} == set()
