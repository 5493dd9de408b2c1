"""Judges a history, in Jepsen's words. Pure: events in, findings out.

lost         stored (2xx), and never acked by a group although all of it was drained
unexpected   delivered, but never published, refused, or with another id, key or body
duplicated   delivered again to a group: each time with a cause, or it is a failure
recovered    the publish ended unknown, and the message came
order        queue mode: first deliveries of a queue do not increase; ordered: before the key's earlier one was settled
overlap      two leases of one queue or message at the same time
refused      an ack was refused although its lease had not ended, or the same receipt was applied twice

A lease begins when the store granted it (its end less the group's visibility) and counts under its incarnation: what
another incarnation says is a loss of lease state, which only a fault of Redis may cause. A broker that was started
again may put its queues back to what it stored since (`rewound`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from history import Event, Fault, Group, Message, Publish, Receive, Settle

__all__ = ["FAILURES", "Findings", "check"]

FAILURES = ("lost", "unexpected", "duplicated", "order", "overlap", "refused")
LOSES_LEASES = frozenset({"redis flushed", "redis killed"})
DONE = frozenset({"applied", "late_applied", "duplicate"})
_EXAMPLES = 20
# Instants travel in milliseconds, and a fault is noted by another process than the one it befalls.
_SLACK = 0.05
# For so long after a broker's start gateways may still find out about it.
_NOTICED = 30.0

Entry = tuple[str, int]


class Grant(NamedTuple):
    """One message in one lease. `came` is the time at which the client received it."""

    at: float
    came: float
    until: float
    incarnation: str
    epoch: int
    message: Message


class Done(NamedTuple):
    """A settlement of a lease of a message."""

    began: float
    ended: float
    verb: str
    outcome: str


class Publishes(NamedTuple):
    """Key, publish outcomes and id by body. `stored` has the positions that responses reported."""

    keys: dict[str, str | None]
    outcomes: defaultdict[str, set[str]]
    ids: dict[str, str]
    stored: dict[Entry, str]


@dataclass
class Findings:
    """Counts of `failures` by kind with the first example, and `causes` of explained redeliveries by group."""

    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    causes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    acked: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    published: int = 0
    recovered: int = 0
    stored_twice: int = 0

    def fail(self, kind: str, text: str) -> None:
        self.failures[kind] += 1
        if len(self.examples[kind]) < _EXAMPLES:
            self.examples[kind].append(text)


def check(events: Iterable[Event]) -> Findings:
    """Return all findings of a history whose groups were drained at its end."""
    publishes, cases, faults = _sorted_out(events)
    findings = Findings(published=len(publishes.stored))
    came: dict[Entry, str] = dict(publishes.stored)
    for case in cases:
        _check_content(case, publishes, came, findings)
        _check_loss(case, publishes, findings)
        _check_repeats(case, faults, findings)
        _check_settlements(case, faults, findings)
        if case.group.mode == "queue":
            _check_queue_order(case, findings)
        if case.group.is_ordered:
            _check_key_order(case, findings)
    _check_copies(came, publishes, findings)
    return findings


class Case:
    """Deliveries and settlements of one group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.grants: defaultdict[Entry, list[Grant]] = defaultdict(list)
        self.said: defaultdict[tuple[str, str, int, int], list[Done]] = defaultdict(list)
        self.acked: dict[Entry, list[tuple[str, float]]] = defaultdict(list)

    def deliver(self, event: Receive) -> None:
        at = event.leased_until - self.group.visibility
        for message in event.messages:
            grant = Grant(at, event.ended, event.leased_until, event.incarnation, message.epoch, message)
            self.grants[message.queue, message.offset].append(grant)

    def settle(self, event: Settle) -> None:
        for result in event.settled:
            for offset in range(result.start, result.next):
                done = Done(event.began, event.ended, event.verb, result.outcome)
                self.said[result.incarnation, result.queue, result.epoch, offset].append(done)
                if event.verb == "ack" and (result.outcome in DONE or result.outcome == "unknown"):
                    self.acked[result.queue, offset].append((result.incarnation, event.began))

    def said_of(self, grant: Grant) -> list[Done]:
        message = grant.message
        return self.said.get((grant.incarnation, message.queue, grant.epoch, message.offset), [])


def _sorted_out(events: Iterable[Event]) -> tuple[Publishes, list[Case], list[Fault]]:
    publishes = Publishes({}, defaultdict(set), {}, {})
    cases: dict[str, Case] = {}
    faults = []
    for event in events:
        match event:
            case Group():
                cases[event.name] = Case(event)
            case Publish():
                for sent in event.sent:
                    publishes.keys[sent.body] = sent.key
                    publishes.outcomes[sent.body].add(sent.outcome)
                    if sent.outcome == "stored":
                        publishes.ids[sent.body] = sent.id
                        publishes.stored[sent.queue, sent.offset] = sent.body
            case Receive():
                cases[event.group].deliver(event)
            case Settle():
                cases[event.group].settle(event)
            case Fault():
                faults.append(event)
    return publishes, list(cases.values()), faults


def _check_content(case: Case, publishes: Publishes, came: dict[Entry, str], findings: Findings) -> None:
    """Check that every delivery was published with this body and is stored at the reported position."""
    for entry, grants in case.grants.items():
        findings.delivered[case.group.name] += len(grants)
        for message in {grant.message.id + grant.message.body: grant.message for grant in grants}.values():
            outcomes = publishes.outcomes.get(message.body)
            reason = ""
            if outcomes is None or outcomes == {"refused"}:
                reason = "was never published" if outcomes is None else "was refused"
            elif message.key != publishes.keys[message.body]:
                reason = f"was published with key {publishes.keys[message.body]}"
            elif message.id != publishes.ids.setdefault(message.body, message.id):
                reason = f"has the id {publishes.ids[message.body]}"
            elif message.body != came.setdefault(entry, message.body):
                reason = f"is not {came[entry]}, which lies there"
            if reason:
                findings.fail("unexpected", f"{case.group.name}: {message} {reason}")


def _check_loss(case: Case, publishes: Publishes, findings: Findings) -> None:
    for entry, body in publishes.stored.items():
        if entry not in case.acked:
            findings.fail("lost", f"{case.group.name}: {body} at {entry}, delivered {len(case.grants.get(entry, ()))}x")
    findings.acked[case.group.name] = len(case.acked)


def _check_repeats(case: Case, faults: list[Fault], findings: Findings) -> None:
    """Check that every redelivery has a cause, and that leases do not overlap."""
    for entry, grants in case.grants.items():
        grants.sort(key=lambda grant: (grant.at, grant.epoch))
        for before, again in pairwise(grants):
            cause = _cause(case, before, again, faults)
            if cause in {"overlap", "duplicated"}:
                findings.fail(cause, f"{case.group.name}: {entry} {_told(case, before)}, then {_told(case, again)}")
            else:
                findings.causes[case.group.name][cause] += 1


def _cause(case: Case, before: Grant, again: Grant, faults: list[Fault]) -> str:
    queue = before.message.queue
    if before.incarnation != again.incarnation:
        is_lost = any(fault.kind in LOSES_LEASES for fault in _between(faults, before.at, again.at))
        return "lease state lost" if is_lost else "duplicated"
    if before.epoch == again.epoch:
        return "overlap"
    said = [done for done in case.said_of(before) if done.began <= again.at + _SLACK]
    is_acked = any(done.verb == "ack" and done.outcome in DONE for done in case.said_of(before))
    if is_acked:
        return "broker restarted" if _was_restarted(faults, queue, again.at) else "duplicated"
    if any(done.verb == "nack" and done.outcome in {*DONE, "unknown"} for done in said):
        return "given back"
    if again.epoch > before.epoch and again.at >= before.until:
        return "lease ended"
    return "broker restarted" if _was_restarted(faults, queue, again.at) else "overlap"


def _between(faults: list[Fault], begin: float, end: float) -> Iterator[Fault]:
    return (fault for fault in faults if begin - _SLACK <= fault.ended and fault.began <= end + _SLACK)


def _was_restarted(faults: list[Fault], queue: str, at: float) -> bool:
    broker = queue.partition(":")[0]
    return any(
        fault.kind == "broker killed" and fault.target == broker and fault.began <= at <= fault.ended + _NOTICED
        for fault in faults
    )


def _check_settlements(case: Case, faults: list[Fault], findings: Findings) -> None:
    """Check that a receipt is applied once, and is refused early only after a loss of state or a settlement."""
    for grants in case.grants.values():
        for grant in grants:
            said = case.said_of(grant)
            if sum(done.outcome in {"applied", "late_applied"} for done in said) > 1:
                findings.fail("refused", f"{case.group.name}: applied twice: {_told(case, grant)}")
            if len({done.verb for done in said}) > 1:
                continue
            for done in said:
                is_refused = done.outcome not in DONE and done.outcome != "unknown"
                if is_refused and done.ended < grant.until and not _is_excused(grant, done, faults):
                    findings.fail("refused", f"{case.group.name}: {done.outcome} in time: {_told(case, grant)}")


def _is_excused(grant: Grant, done: Done, faults: list[Fault]) -> bool:
    lost = any(fault.kind in LOSES_LEASES for fault in _between(faults, grant.at, done.ended))
    return lost or _was_restarted(faults, grant.message.queue, done.ended)


def _check_queue_order(case: Case, findings: Findings) -> None:
    """Return the order of a grant: by the clock of the store, and within a millisecond by epoch."""
    first: defaultdict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for (queue, offset), grants in case.grants.items():
        earliest = min(grants, key=lambda grant: (grant.at, grant.epoch))
        first[queue].append((earliest.at, earliest.epoch, offset))
    for queue, seen in first.items():
        seen.sort()
        for before, after in pairwise(seen):
            if after[2] < before[2]:
                text = f"offset {after[2]} first in epoch {after[1]}, but {before[2]} in {before[1]}"
                findings.fail("order", f"{case.group.name}: {queue} at {after[0]:.3f}: {text}")


def _check_key_order(case: Case, findings: Findings) -> None:
    """Before a client has a message its key's earlier one is settled: in this incarnation, if it was given in it.

    Not before the grant: that comes first, then the keys are read, and what is not in turn is taken out again.
    """
    of_key: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry, grants in case.grants.items():
        if grants[0].message.key is not None:
            of_key[entry[0], grants[0].message.key].append(entry)
    for entries in of_key.values():
        entries.sort()
        for earlier, later in pairwise(entries):
            given = {grant.incarnation for grant in case.grants[earlier]}
            for grant in case.grants[later]:
                settled = [
                    began
                    for incarnation, began in case.acked.get(earlier, ())
                    if incarnation == grant.incarnation or grant.incarnation not in given
                ]
                if min(settled, default=float("inf")) > grant.came:
                    text = f"came at {grant.came:.3f} before {earlier} was settled ({settled})"
                    findings.fail("order", f"{case.group.name}: key {grant.message.key}: {later} {text}")


def _check_copies(came: Mapping[Entry, str], publishes: Publishes, findings: Findings) -> None:
    """Check that a message is stored once, unless the outcome of a publish was unknown."""
    places: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry, body in came.items():
        places[body].append(entry)
    for body, entries in places.items():
        outcomes = publishes.outcomes.get(body, set())
        if len(entries) > 1:
            findings.stored_twice += 1
            if "unknown" not in outcomes:
                findings.fail("duplicated", f"{body} lies at {entries}, and every publish was answered")
        if "unknown" in outcomes and "stored" not in outcomes:
            findings.recovered += 1


def _told(case: Case, grant: Grant) -> str:
    said = [f"{done.verb} {done.outcome} {done.began:.3f}-{done.ended:.3f}" for done in case.said_of(grant)]
    lease = f"{grant.at:.3f}-{grant.until:.3f}"
    return f"[{grant.incarnation[:6]} epoch {grant.epoch} offset {grant.message.offset} leased {lease} {said}]"
