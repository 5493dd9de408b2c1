"""The reference model of message mode: small, slow, and written from semantics.md, not from the code.

An Entry is one message of a queue as one group sees it, always in exactly one state. A Lease is a granted message. It
is kept forever, because old receipts must stay without effect. Times are milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_HOLD = 12 * 3_600_000
UNSETTLED = {"ready", "leased", "waiting"}
EXPIRED = "the lease ended without an answer"
QueueOffset = tuple[str, int]
# What an attempt asks for: how many, and for how long, None if it leaves that to the group.
Shape = tuple[int, int | None]


@dataclass(frozen=True)
class Message:
    id: str
    body: str
    key: str | None
    tag: str | None


@dataclass(eq=False)
class Entry:
    message: Message
    queue: str
    offset: int
    state: str = "ready"
    delivery: int = 0
    ready_at: int = 0
    lease: "Lease | None" = None

    @property
    def position(self) -> QueueOffset:
        return self.queue, self.offset

    def is_due(self, now: int) -> bool:
        return self.state == "ready" or (self.state == "waiting" and self.ready_at <= now)


@dataclass(eq=False)
class Lease:
    entry: Entry
    receipt: str
    granted_at: int
    until: int
    spent_by: str | None = None
    is_swept: bool = False
    # A client that hung up may have been granted the message since: then nothing of this lease applies any more.
    is_doubtful: bool = False


@dataclass
class Attempt:
    shape: Shape
    leases: list[Lease]

    def is_live(self, now: int) -> bool:
        return all(
            lease.entry.lease is lease and lease.entry.state == "leased" and now < lease.until for lease in self.leases
        )


@dataclass
class GroupModel:
    """The rules of semantics.md for one group."""

    name: str
    visibility: int
    max_attempts: int
    backoff: Sequence[int]
    cap: int
    tags: frozenset[str] = frozenset()
    is_ordered: bool = False
    is_paused: bool = False
    queues: dict[str, list[Entry]] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    letters: dict[QueueOffset, tuple[str, int, str]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)

    def append(self, queue: str, message: Message) -> None:
        entries = self.queues.setdefault(queue, [])
        entries.append(Entry(message, queue, len(entries)))

    def entries(self) -> Iterable[Entry]:
        return (entry for entries in self.queues.values() for entry in entries)

    def is_wanted(self, entry: Entry) -> bool:
        return not self.tags or entry.message.tag in self.tags

    def unsettled(self) -> list[Entry]:
        """Return the entries that match the filter of the group and are not settled."""
        return [entry for entry in self.entries() if entry.state in UNSETTLED and self.is_wanted(entry)]

    def in_flight(self) -> int:
        return sum(entry.state == "leased" for entry in self.entries())

    def grantable(self, now: int) -> dict[QueueOffset, Entry]:
        """Return the entries that may be granted: due, and in an ordered group the first unsettled one of the key."""
        found = {}
        for entries in self.queues.values():
            blocked = set()
            for entry in entries:
                if entry.state not in UNSETTLED or not self.is_wanted(entry):
                    continue
                key = entry.message.key
                if entry.is_due(now) and not (self.is_ordered and key in blocked):
                    found[entry.position] = entry
                if key is not None:
                    blocked.add(key)
        return found

    def expire_leases(self, now: int) -> None:
        """Record expired leases as failed deliveries, from their deadline on."""
        for entry in self.entries():
            lease = entry.lease
            if entry.state == "leased" and lease is not None and lease.until <= now:
                self._fail(entry, lease.until + self._backoff(entry.delivery), EXPIRED)

    def _backoff(self, failures: int) -> int:
        return self.backoff[min(failures, len(self.backoff)) - 1]

    def _fail(self, entry: Entry, ready_at: int, reason: str) -> None:
        if entry.delivery >= self.max_attempts:
            entry.state = "dead"
            self.letters.setdefault(entry.position, (entry.message.id, entry.delivery, reason))
        else:
            entry.state = "waiting"
            entry.ready_at = ready_at

    def repeated(self, attempt: str | None, shape: Shape, now: int) -> Attempt | str | None:
        """Return the attempt that this one repeats, "mismatch" for other parameters, or None for a new one."""
        if attempt is None or attempt not in self.attempts:
            return None
        known = self.attempts[attempt]
        if not known.is_live(now):
            del self.attempts[attempt]
            return None
        return known if known.shape == shape else "mismatch"

    def room(self, most: int) -> int:
        return min(most, max(self.cap - self.in_flight(), 0))

    def why_empty(self, now: int) -> str:
        if self.is_paused:
            return "paused"
        if self.in_flight() >= self.cap:
            return "in_flight_cap"
        return "busy" if self.unsettled() else "ok"

    def grant(self, messages: Sequence[Any], visibility: int, now: int) -> list[Lease]:
        """Check the granted messages against those that may be granted, and record them."""
        grantable = self.grantable(now)
        leases = []
        for received in messages:
            entry = grantable.pop((received["queue"], received["offset"]), None)
            assert entry is not None, f"not to be granted now: {received}"
            message = Message(received["id"], received["body"], received["key"], received["tag"])
            assert message == entry.message
            assert received["delivery"] == entry.delivery + 1 <= self.max_attempts
            lease = Lease(entry, received["receipt"], now, now + visibility)
            entry.state, entry.delivery, entry.lease = "leased", entry.delivery + 1, lease
            leases.append(lease)
        self.leases += leases
        return leases

    def outcome(self, lease: Lease, verb: str, now: int, visibility: int) -> str:
        """Return the outcome according to the outcome table of semantics.md."""
        if lease.spent_by is not None:
            return "duplicate" if lease.spent_by == verb else "lost"
        if lease.is_swept:
            return "gone"
        entry = lease.entry
        if entry.lease is not lease or entry.state not in {"leased", "waiting"}:
            return "lost"
        if verb == "extend" and now + visibility > lease.granted_at + MAX_HOLD:
            return "invalid"
        return "applied" if entry.state == "leased" and now < lease.until else "late_applied"

    def settle(
        self, lease: Lease, verb: str, now: int, answered: str, *, visibility: int = 0, delay: int | None = None
    ) -> str:
        """Return the outcome and apply it to the model. `answered` decides where two outcomes are correct."""
        outcome = self.outcome(lease, verb, now, visibility)
        if lease.is_doubtful and answered == "lost" and outcome in {"late_applied", "invalid"}:
            lease.entry.lease = None
            return "lost"
        if outcome not in {"applied", "late_applied"}:
            return outcome
        entry = lease.entry
        if verb == "extend":
            entry.state, lease.until = "leased", now + visibility
            return outcome
        lease.spent_by = verb
        if verb == "ack":
            entry.state = "acked"
        else:
            self._fail(entry, now + (self._backoff(entry.delivery) if delay is None else delay), "no")
        return outcome

    def released(self, now: int) -> None:
        """Release everything that was granted to a disconnected client."""
        self.expire_leases(now)
        for entry in self.grantable(now).values():
            if entry.lease is not None and not self.is_paused:
                entry.lease.is_doubtful = True

    def seek(self, queue: str, to: int) -> None:
        for lease in self.leases:
            lease.is_swept |= lease.entry.queue == queue
        for entry in self.queues.get(queue, ()):
            if entry.offset >= to:
                entry.state, entry.delivery, entry.lease = "ready", 0, None
            elif entry.state in UNSETTLED:
                entry.state = "skipped"
        self.committed[queue] = to

    def redriven(self, positions: Sequence[QueueOffset]) -> None:
        """Append dead letters, in this order, to the private log of the group."""
        for queue, offset in positions:
            self.append("retry-local:0", self.queues[queue][offset].message)
            del self.letters[queue, offset]

    def check_lag(self, lag: Any, now: int) -> None:
        """Conservation: the gateway counts exactly the unsettled messages, and none below committed."""
        unsettled = self.unsettled()
        waiting = sum(not entry.is_due(now) for entry in unsettled if entry.state != "leased")
        assert lag["leased"] == self.in_flight()
        if self.tags:
            # An upper bound until scanned.
            assert lag["lag"] >= len(unsettled)
            assert lag["lag"] <= sum(entry.state in UNSETTLED for entry in self.entries())
        else:
            assert lag["lag"] == len(unsettled)
            assert self.is_ordered or lag["waiting"] == waiting
        for row in lag["queues"]:
            queue, committed = row["queue"], row["committed"]
            assert committed >= self.committed.get(queue, 0), "committed went back"
            self.committed[queue] = committed
            own = self.queues.get(queue, [])
            left = [entry.offset for entry in own if entry.state in UNSETTLED and self.is_wanted(entry)]
            assert committed <= row["cursor"] <= row["max"] == len(own)
            assert committed <= min(left, default=len(own))
            assert self.tags or committed == min(left, default=len(own))
