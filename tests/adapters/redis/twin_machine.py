"""Whatever Hypothesis plays on two lease stores: consumers, operators, brokers, time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mqgate.core.backoff import NO_BACKOFF, Backoff
from mqgate.core.entries import Mode, OnPoison, RateLimit
from mqgate.core.lease import (
    AcquireRequest,
    AcquireResult,
    ExhaustedMessage,
    Grant,
    PullReport,
    QueueBounds,
    Settlement,
    Verb,
    attempt_fingerprint,
)
from mqgate.testing.clock import ManualClock
from mqgate.testing.leasing import LONGEST_DOUBT
from mqgate.testing.samples import a_group
from random_examples import examples

# Offsets of three digits throughout: of what is ready at the same instant Redis takes the first by name.
FIRST, LAST = 100, 999
SECOND = timedelta(seconds=1)
STEPS = Backoff(steps=(2 * SECOND, 5 * SECOND))
CLIENTS = ["ada", "ben", "cem"]
KEYS = ["a", "b", None]

clients = st.sampled_from(CLIENTS)
sizes = st.sampled_from([1, 1, 2, 3, 8])
# Mostly the newest, sometimes old ones.
numbers = st.one_of(st.integers(0, 3), st.integers(0, 40))
shares = st.sampled_from([0, 1, 2, 100, 100, 100])
visibilities = st.sampled_from([SECOND, 5 * SECOND, 30 * SECOND])


def settlements(*verbs: Verb) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "number": numbers,
            "verb": st.sampled_from(verbs),
            "delay": st.sampled_from([None, None, timedelta(0), 3 * SECOND]),
            "visibility": st.sampled_from([None, SECOND, 30 * SECOND, timedelta(hours=12)]),
            "reason": st.sampled_from([None, "no"]),
            "share": st.integers(0, 4),
        }
    )


wishes = st.fixed_dictionaries(
    {
        "client": clients,
        "max_count": sizes,
        "visibility": visibilities,
        "attempt": st.sampled_from([None, None, "a1", "a2"]),
        "carried": st.lists(settlements(Verb.ACK, Verb.ACK, Verb.NACK), max_size=2),
        "has_other_waiters": st.booleans(),
        "closed": st.sampled_from([(), (), (), ("local:0",), ("local:0", "local:1")]),
        "is_told": st.sampled_from([True, True, False]),
    }
)
CHANGES: list[dict[str, Any]] = [
    {"is_paused": True},
    {"is_paused": False},
    {"is_paused": False},
    {"max_attempts": 2},
    {"max_attempts": 4},
    {"rate_limit": RateLimit(rate=3, burst=5)},
    {"rate_limit": None},
    {"max_in_flight": 3},
    {"max_in_flight": 10_000},
    {"backoff": NO_BACKOFF},
    {"backoff": STEPS},
    {"on_poison": OnPoison.BLOCK},
    {"on_poison": OnPoison.DEAD},
]
changes = st.sampled_from(CHANGES)


class Twins(Protocol):
    """Lease stores on one clock, on which every step is played, with one answer."""

    clock: ManualClock

    def play(self, verb: str, *arguments: Any, **options: Any) -> Any: ...


class TwinMachine(RuleBasedStateMachine):
    """One group; `kind` is its mode, and in message mode whether it is ordered or filtered."""

    count = 0

    def __init__(self, twins: Twins, kind: str) -> None:
        super().__init__()
        TwinMachine.count += 1
        self.twins = twins
        self.mode = Mode.MESSAGE if kind in {"plain", "ordered", "filtered"} else Mode(kind)
        self.has_tags = kind == "filtered"
        self.group = a_group(
            name=f"{kind}-{self.count}",
            mode=self.mode,
            max_attempts=4,
            backoff=STEPS,
            client_ttl=timedelta(hours=1),
            is_ordered=kind == "ordered",
        )
        self.bounds: dict[str, QueueBounds] = {}
        self.told: dict[str, dict[str, QueueBounds]] = {}
        self.grants: list[Grant] = []
        # Of an ordered group nobody has a receipt before the keys were told.
        self.delivered: list[Grant] = []
        self.exhausted: list[ExhaustedMessage] = []

    # What the log has, and time.

    @initialize(ends=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    def register(self, ends: list[int]) -> None:
        self.bounds = {f"local:{number}": QueueBounds(FIRST, FIRST + end) for number, end in enumerate(ends)}
        if self.mode is not Mode.BROADCAST:
            self.open("ada")

    @rule(number=st.integers(0, 2), count=st.integers(1, 6))
    def append(self, number: int, count: int) -> None:
        queue = list(self.bounds)[number % len(self.bounds)]
        head = self.bounds[queue]
        self.bounds[queue] = QueueBounds(head.min, min(head.max + count, LAST))

    @rule(number=st.integers(0, 2), count=st.integers(1, 8))
    def lose_to_retention(self, number: int, count: int) -> None:
        queue = list(self.bounds)[number % len(self.bounds)]
        head = self.bounds[queue]
        self.bounds[queue] = QueueBounds(min(head.min + count, head.max), head.max)

    @rule(number=st.integers(0, 2), left=st.integers(0, 3))
    def come_back_shorter(self, number: int, left: int) -> None:
        """A lower end is news to Redis only when the higher one is old: gateways may be slow to tell."""
        queue = list(self.bounds)[number % len(self.bounds)]
        self.twins.clock.advance(LONGEST_DOUBT)
        self.bounds[queue] = QueueBounds(FIRST, FIRST + left)

    @precondition(lambda self: len(self.bounds) < 4)
    @rule(count=st.integers(0, 4))
    def add_a_queue(self, count: int) -> None:
        self.bounds[f"local:{len(self.bounds)}"] = QueueBounds(FIRST, FIRST + count)

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 2, 5, 10, 31, 61]))
    def wait(self, seconds: float) -> None:
        self.twins.clock.advance(seconds)

    @rule(what=st.sampled_from(["wait long", "forget", "open", "open"]), client=clients)
    def something_rare(self, what: str, client: str) -> None:
        if what == "wait long":
            self.twins.clock.advance(3_600)
        elif what == "forget":
            self.twins.play("forget", self.group.name)
            self.told.clear()
        else:
            self.open(client)

    # Consumers.

    def scope(self, client: str) -> str:
        return client if self.mode is Mode.BROADCAST else ""

    def open(self, client: str) -> None:
        scope = self.scope(client)
        at_end = self.mode is Mode.BROADCAST
        starts = {queue: head.max if at_end else head.min for queue, head in self.bounds.items()}
        self.twins.play("create_state", self.group, scope, starts, self.bounds)
        self.told.setdefault(scope, {}).update(self.bounds)

    def news(self, scope: str) -> dict[str, QueueBounds]:
        """The ends that changed since the scope was told."""
        known = self.told.get(scope, {})
        return {queue: head for queue, head in self.bounds.items() if known.get(queue) != head}

    def ask(
        self,
        *,
        client: str,
        max_count: int,
        visibility: timedelta,
        attempt: str | None,
        carried: list[Mapping[str, Any]],
        has_other_waiters: bool,
        closed: tuple[str, ...],
        is_told: bool,
    ) -> list[Grant]:
        scope = self.scope(client)
        bounds = self.news(scope) if is_told else {}
        if any(head.max < self.told.get(scope, {}).get(queue, head).max for queue, head in bounds.items()):
            # Whether an attempt is refused that asks for something else than what this very news sweeps away is open.
            attempt = None
        request = AcquireRequest(
            group=self.group,
            client=scope,
            max_count=max_count,
            visibility=visibility,
            bounds=bounds,
            polled_by=client,
            attempt=attempt,
            settlements=[self.settlement(**each) for each in carried] if self.delivered else [],
            has_other_waiters=has_other_waiters,
            closed=frozenset(closed),
            shape=attempt_fingerprint(max_count, visibility),
        )
        return self.acquire(client, request)

    def acquire(self, client: str, request: AcquireRequest) -> list[Grant]:
        scope, bounds = request.client, request.bounds
        acquired = self.twins.play("acquire", request)
        if not isinstance(acquired, AcquireResult):
            return []
        if not acquired.state_exists or acquired.unknown_queues:
            self.open(client)
            return []
        self.told.setdefault(scope, {}).update(bounds)
        self.grants += acquired.grants
        if not self.group.is_ordered:
            self.delivered += acquired.grants
        self.exhausted += acquired.exhausted
        return list(acquired.grants)

    @rule(wish=wishes, share=shares)
    def receive(self, wish: dict[str, Any], share: int) -> None:
        """As a gateway does: what was granted is pulled, all of it or some, and what came is told."""
        grants = self.ask(**wish)
        if grants:
            self.placed([self.placement(grant, share) for grant in grants])

    # Rules are drawn evenly; consumers are busier than operators.
    @rule(wish=wishes, share=shares)
    def receive_more(self, wish: dict[str, Any], share: int) -> None:
        self.receive(wish, share)

    @rule(wish=wishes)
    def receive_and_die(self, wish: dict[str, Any]) -> None:
        """The gateway that asked is killed before it could tell what it found."""
        self.ask(**wish)

    def placement(self, grant: Grant, share: int) -> PullReport:
        after = min(grant.lease.start + share, grant.lease.next)
        if not (self.has_tags or self.group.is_ordered):
            return PullReport(grant, after)
        found = range(grant.lease.start, after)
        kept = {offset: KEYS[offset % len(KEYS)] for offset in found if not self.has_tags or offset % 4}
        return PullReport(grant, after, kept)

    def placed(self, placements: list[PullReport]) -> None:
        self.twins.play("report_pull", self.group, placements)
        if self.group.is_ordered:
            self.delivered += [each.grant for each in placements]

    @precondition(lambda self: self.grants)
    @rule(number=numbers, share=shares)
    def tell_late(self, number: int, share: int) -> None:
        """A pull that took long, or a client that hung up: perhaps the grant is no longer what it was."""
        self.placed([self.placement(self.grants[-1 - number % len(self.grants)], share)])

    def settlement(
        self,
        *,
        number: int,
        verb: Verb,
        delay: timedelta | None,
        visibility: timedelta | None,
        reason: str | None,
        share: int,
    ) -> Settlement:
        lease = self.delivered[-1 - number % len(self.delivered)].lease
        offset = lease.start + share % (lease.next - lease.start)
        through = offset if verb is Verb.ACK and share else None
        if self.mode is Mode.MESSAGE:
            lease, through = lease._replace(start=offset, next=offset + 1), None
        return Settlement(verb, lease, through, delay, reason, visibility)

    @precondition(lambda self: self.delivered)
    @rule(wanted=st.lists(settlements(Verb.ACK, Verb.ACK, Verb.NACK, Verb.EXTEND), min_size=1, max_size=3))
    def settle(self, wanted: list[dict[str, Any]]) -> None:
        settled = self.twins.play("settle", self.group, [self.settlement(**each) for each in wanted])
        self.exhausted += [each.exhausted for each in settled if each.exhausted is not None]

    @precondition(lambda self: self.exhausted)
    @rule(number=numbers)
    def settle_dead(self, number: int) -> None:
        self.twins.play("settle_dead", self.group, self.exhausted[-1 - number % len(self.exhausted)])

    # Operators.

    @rule(client=clients, is_told=st.booleans())
    def look(self, client: str, is_told: bool) -> None:
        scope = self.scope(client)
        bounds = self.bounds if is_told else {}
        found = self.twins.play("positions", self.group, scope, bounds)
        if found is not None:
            known = self.told.setdefault(scope, {})
            known |= {queue: head for queue, head in bounds.items() if queue in known}
            self.exhausted += found[1]
        self.twins.play("committed", self.group.name)
        # Of a broadcast group more clients poll than may be registered, and not all of them are listed.
        if self.mode is not Mode.BROADCAST:
            self.twins.play("clients", self.group.name)

    @rule(client=clients, number=st.integers(0, 3), share=st.integers(0, 100), is_dry_run=st.booleans())
    def seek(self, client: str, number: int, share: int, is_dry_run: bool) -> None:
        scope = self.scope(client)
        queue = list(self.bounds)[number % len(self.bounds)]
        head = self.bounds[queue]
        targets = {queue: head.min + share % (head.max - head.min + 1)}
        moved = self.twins.play("seek", self.group, scope, targets, bounds=self.bounds, is_dry_run=is_dry_run)
        if moved is not None:
            self.told.setdefault(scope, {}).update(self.bounds)

    @rule(change=changes)
    def change_the_group(self, change: dict[str, Any]) -> None:
        self.group = replace(self.group, **change)


RULES = examples(40, steps=60)
