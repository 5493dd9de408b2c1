"""State machine that runs random steps of consumers, operators, brokers and time on two lease stores."""

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
from mqgate.testing.leasing import BOUNDS_TRUSTED
from mqgate.testing.samples import a_group
from random_examples import examples

# All offsets have three digits: Redis orders messages that are ready at the same instant by their name.
FIRST, LAST = 100, 999
SECOND = timedelta(seconds=1)
STEPS = Backoff(steps=(2 * SECOND, 5 * SECOND))
CLIENTS = ["ada", "ben", "cem"]
KEYS = ["a", "b", None]

clients = st.sampled_from(CLIENTS)
sizes = st.sampled_from([1, 1, 2, 3, 8])
# Usually one of the newest grants, sometimes an old one.
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


requests = st.fixed_dictionaries(
    {
        "client": clients,
        "max_count": sizes,
        "visibility": visibilities,
        "attempt": st.sampled_from([None, None, "a1", "a2"]),
        "carried": st.lists(settlements(Verb.ACK, Verb.ACK, Verb.NACK), max_size=2),
        "has_other_waiters": st.booleans(),
        "closed": st.sampled_from([(), (), (), ("local:0",), ("local:0", "local:1")]),
        "is_reported": st.sampled_from([True, True, False]),
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
    """Lease stores on one clock that run every step and must return the same result."""

    clock: ManualClock

    def play(self, verb: str, *arguments: Any, **options: Any) -> Any: ...


class TwinMachine(RuleBasedStateMachine):
    """Machine with one group. `kind` is its mode, and in message mode whether it is plain, ordered or filtered."""

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
        self.reported: dict[str, dict[str, QueueBounds]] = {}
        self.grants: list[Grant] = []
        # Clients of an ordered group get receipts only after the pull was reported.
        self.delivered: list[Grant] = []
        self.exhausted: list[ExhaustedMessage] = []

    # The log and time.

    @initialize(ends=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    def register(self, ends: list[int]) -> None:
        self.bounds = {f"local:{number}": QueueBounds(FIRST, FIRST + end) for number, end in enumerate(ends)}
        if self.mode is not Mode.BROADCAST:
            self.open("ada")

    @rule(number=st.integers(0, 2), count=st.integers(1, 6))
    def append(self, number: int, count: int) -> None:
        queue = list(self.bounds)[number % len(self.bounds)]
        bounds = self.bounds[queue]
        self.bounds[queue] = QueueBounds(bounds.min, min(bounds.max + count, LAST))

    @rule(number=st.integers(0, 2), count=st.integers(1, 8))
    def lose_to_retention(self, number: int, count: int) -> None:
        queue = list(self.bounds)[number % len(self.bounds)]
        bounds = self.bounds[queue]
        self.bounds[queue] = QueueBounds(min(bounds.min + count, bounds.max), bounds.max)

    @rule(number=st.integers(0, 2), left=st.integers(0, 3))
    def truncate(self, number: int, left: int) -> None:
        """Truncate a queue. Redis accepts a lower max only if the stored one is old, because reports may be late."""
        queue = list(self.bounds)[number % len(self.bounds)]
        self.twins.clock.advance(BOUNDS_TRUSTED)
        self.bounds[queue] = QueueBounds(FIRST, FIRST + left)

    @precondition(lambda self: len(self.bounds) < 4)
    @rule(count=st.integers(0, 4))
    def add_a_queue(self, count: int) -> None:
        self.bounds[f"local:{len(self.bounds)}"] = QueueBounds(FIRST, FIRST + count)

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 2, 5, 10, 31, 61]))
    def wait(self, seconds: float) -> None:
        self.twins.clock.advance(seconds)

    @rule(what=st.sampled_from(["wait long", "forget", "open", "open"]), client=clients)
    def rare_step(self, what: str, client: str) -> None:
        if what == "wait long":
            self.twins.clock.advance(3_600)
        elif what == "forget":
            self.twins.play("forget", self.group.name)
            self.reported.clear()
        else:
            self.open(client)

    # Consumers.

    def scope(self, client: str) -> str:
        return client if self.mode is Mode.BROADCAST else ""

    def open(self, client: str) -> None:
        scope = self.scope(client)
        at_end = self.mode is Mode.BROADCAST
        starts = {queue: bounds.max if at_end else bounds.min for queue, bounds in self.bounds.items()}
        self.twins.play("create_state", self.group, scope, starts, self.bounds)
        self.reported.setdefault(scope, {}).update(self.bounds)

    def unreported(self, scope: str) -> dict[str, QueueBounds]:
        """Return the bounds that changed since they were reported to the scope."""
        known = self.reported.get(scope, {})
        return {queue: bounds for queue, bounds in self.bounds.items() if known.get(queue) != bounds}

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
        is_reported: bool,
    ) -> list[Grant]:
        scope = self.scope(client)
        bounds = self.unreported(scope) if is_reported else {}
        known = self.reported.get(scope, {})
        if any(reported.max < known.get(queue, reported).max for queue, reported in bounds.items()):
            # Undefined: whether a mismatching attempt is refused if the same request revokes its lease.
            attempt = None
        request = AcquireRequest(
            group=self.group,
            client=scope,
            max_count=max_count,
            visibility=visibility,
            bounds=bounds,
            polled_by=client,
            attempt=attempt,
            settlements=[self.settlement(**settlement) for settlement in carried] if self.delivered else [],
            has_other_waiters=has_other_waiters,
            closed=frozenset(closed),
            fingerprint=attempt_fingerprint(max_count, visibility),
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
        self.reported.setdefault(scope, {}).update(bounds)
        self.grants += acquired.grants
        if not self.group.is_ordered:
            self.delivered += acquired.grants
        self.exhausted += acquired.exhausted
        return list(acquired.grants)

    @rule(request=requests, share=shares)
    def receive(self, request: dict[str, Any], share: int) -> None:
        """Acquire as a gateway does, then report that the pull found all or a part of the grants."""
        grants = self.ask(**request)
        if grants:
            self.report_pull([self.pull_report(grant, share) for grant in grants])

    # Hypothesis draws rules evenly, but consumers are busier than operators.
    @rule(request=requests, share=shares)
    def receive_more(self, request: dict[str, Any], share: int) -> None:
        self.receive(request, share)

    @rule(request=requests)
    def receive_and_crash(self, request: dict[str, Any]) -> None:
        """Acquire with a gateway that crashes before it reports the pull."""
        self.ask(**request)

    def pull_report(self, grant: Grant, share: int) -> PullReport:
        after = min(grant.lease.start + share, grant.lease.next)
        if not (self.has_tags or self.group.is_ordered):
            return PullReport(grant, after)
        found = range(grant.lease.start, after)
        kept = {offset: KEYS[offset % len(KEYS)] for offset in found if not self.has_tags or offset % 4}
        return PullReport(grant, after, kept)

    def report_pull(self, reports: list[PullReport]) -> None:
        self.twins.play("report_pull", self.group, reports)
        if self.group.is_ordered:
            self.delivered += [report.grant for report in reports]

    @precondition(lambda self: self.grants)
    @rule(number=numbers, share=shares)
    def report_late(self, number: int, share: int) -> None:
        """Report a pull late, or for a disconnected client: the grant may no longer be current."""
        self.report_pull([self.pull_report(self.grants[-1 - number % len(self.grants)], share)])

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
    @rule(batch=st.lists(settlements(Verb.ACK, Verb.ACK, Verb.NACK, Verb.EXTEND), min_size=1, max_size=3))
    def settle(self, batch: list[dict[str, Any]]) -> None:
        settled = self.twins.play("settle", self.group, [self.settlement(**settlement) for settlement in batch])
        self.exhausted += [result.exhausted for result in settled if result.exhausted is not None]

    @precondition(lambda self: self.exhausted)
    @rule(number=numbers)
    def settle_dead(self, number: int) -> None:
        self.twins.play("settle_dead", self.group, self.exhausted[-1 - number % len(self.exhausted)])

    # Operators.

    @rule(client=clients, is_reported=st.booleans())
    def read_positions(self, client: str, is_reported: bool) -> None:
        scope = self.scope(client)
        bounds = self.bounds if is_reported else {}
        found = self.twins.play("positions", self.group, scope, bounds)
        if found is not None:
            known = self.reported.setdefault(scope, {})
            known |= {queue: queue_bounds for queue, queue_bounds in bounds.items() if queue in known}
            self.exhausted += found[1]
        self.twins.play("committed", self.group.name)
        # More clients of a broadcast group poll than may be registered, and not all of them are listed.
        if self.mode is not Mode.BROADCAST:
            self.twins.play("clients", self.group.name)

    @rule(client=clients, number=st.integers(0, 3), share=st.integers(0, 100), is_dry_run=st.booleans())
    def seek(self, client: str, number: int, share: int, is_dry_run: bool) -> None:
        scope = self.scope(client)
        queue = list(self.bounds)[number % len(self.bounds)]
        bounds = self.bounds[queue]
        targets = {queue: bounds.min + share % (bounds.max - bounds.min + 1)}
        moved = self.twins.play("seek", self.group, scope, targets, bounds=self.bounds, is_dry_run=is_dry_run)
        if moved is not None:
            self.reported.setdefault(scope, {}).update(self.bounds)

    @rule(change=changes)
    def change_the_group(self, change: dict[str, Any]) -> None:
        self.group = replace(self.group, **change)


RULES = examples(40, steps=60)
