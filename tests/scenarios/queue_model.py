"""The reference model of queue and broadcast mode: small, slow, and written from semantics.md, not from the code.

A Topic contains what was published. A Scope is the lease state of a group or of one broadcast client. Its methods
return what a call must return, and change the model accordingly. Times are milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

AGEING = 30_000
MAX_HOLD = 12 * 3_600_000
FAR_PAST = -1
# What an attempt asks for: its name, how many, and for how long, None if it leaves that to the group.
Shape = tuple[str, int, int | None]


@dataclass
class Published:
    id: str
    body: str
    key: str | None
    stored_at: int
    told_at: int


@dataclass
class Topic:
    """Queues by name: all messages that were ever published to a queue, and its first retained offset.

    `store_time_error`: by how many ms the store times that publishes return may differ from those of the log. A broker
    does not return them, so the model knows them less exactly than the gateway.
    """

    queues: dict[str, list[Published]]
    first: dict[str, int]
    store_time_error: int = 0

    @classmethod
    def of(cls, queues: int) -> "Topic":
        names = [f"local:{number}" for number in range(queues)]
        return cls({name: [] for name in names}, dict.fromkeys(names, 0))

    def end(self, queue: str) -> int:
        return len(self.queues[queue])

    def last_append_at(self, queue: str, otherwise: int) -> int:
        """Return the store time of the newest message of a queue, by the clock of the log."""
        messages = self.queues[queue]
        return messages[-1].told_at if messages else otherwise

    def forget_before(self, instant: int) -> int:
        """Apply retention by age. Return the number of deleted messages."""
        gone = 0
        for queue, messages in self.queues.items():
            first = self.first[queue]
            while first < len(messages) and messages[first].stored_at < instant:
                first += 1
            gone += first - self.first[queue]
            self.first[queue] = first
        return gone

    def offset_at(self, queue: str, instant: int) -> int:
        messages = self.queues[queue]
        offset = self.first[queue]
        while offset < len(messages) and messages[offset].stored_at < instant:
            offset += 1
        return offset


@dataclass(eq=False)
class Lease:
    """A granted batch. It is kept forever. `receipt` is the text that the gateway returned."""

    queue: str
    start: int
    next: int
    until: int
    granted_at: int
    delivery: int
    attempt: Shape | None
    scope: "Scope"
    receipt: str = ""
    spent_by: str | None = None
    is_swept: bool = False
    is_dead: bool = False


@dataclass
class Queue:
    committed: int
    seen: tuple[int, int]
    waiting_since: int
    newest: Lease | None = None
    leases: list[Lease] = field(default_factory=list)
    free_at: int = FAR_PAST
    attempts: int = 0
    is_exhausted: bool = False
    last_consumed: int = FAR_PAST
    first_delivered: int = 0
    # What became of every offset below committed.
    fates: dict[int, str] = field(default_factory=dict)

    def backlog(self) -> int:
        first, end = self.seen
        return end - max(self.committed, first)


@dataclass
class Bucket:
    rate: float
    burst: float
    tokens: float
    at: int

    def refill(self, now: int) -> None:
        self.tokens = min(self.tokens + (now - self.at) * self.rate / 1000, self.burst)
        self.at = now


@dataclass
class Rules:
    """The settings of a group."""

    group: str
    mode: str
    visibility: int
    max_attempts: int
    backoff: Sequence[int] = ()
    is_blocking: bool = False
    bucket: Bucket | None = None
    client_ttl: int = 0
    is_paused: bool = False
    dead: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def delay(self, failures: int) -> int:
        return self.backoff[min(failures, len(self.backoff)) - 1] if self.backoff else 0


class Scope:
    def __init__(self, rules: Rules, client: str, topic: Topic, starts: dict[str, int], now: int) -> None:
        self.rules = rules
        self.client = client
        self.topic = topic
        self.last_seen = now
        # Expired and not reported yet. The gateway keeps the notice until it restarts.
        self.unreported = 0
        self.queues = {
            queue: Queue(start, (topic.first[queue], topic.end(queue)), now, first_delivered=start)
            for queue, start in starts.items()
        }
        for queue, start in starts.items():
            self.queues[queue].fates = dict.fromkeys(range(start), "before the start")

    # What the store can see, and what follows from time alone.

    def update_bounds(self, now: int) -> None:
        for name, queue in self.queues.items():
            head = (self.topic.first[name], self.topic.end(name))
            if head != queue.seen:
                if queue.backlog() <= 0:
                    queue.waiting_since = min(self.topic.last_append_at(name, now), now)
                queue.seen = head

    def settle_exhausted(self, now: int) -> list[str]:
        """Settle messages whose last lease has expired as dead. Return the queues that they blocked."""
        closed = []
        for name, queue in self.queues.items():
            if queue.is_exhausted and now >= queue.free_at:
                if queue.committed < queue.seen[0]:
                    queue.is_exhausted, queue.attempts = False, 0
                elif not self.rules.is_blocking:
                    self._settle_dead(name, queue, now)
                    closed.append(name)
        return closed

    def _settle_dead(self, name: str, queue: Queue, now: int) -> None:
        assert queue.newest is not None
        queue.newest.is_dead = True
        is_kept = queue.committed >= self.topic.first[name]
        if is_kept:
            self.rules.dead.setdefault((self.client, name, queue.committed), queue.attempts)
        self.unreported += not is_kept
        self._commit(queue, queue.committed + 1, "dead" if is_kept else "expired", now)

    def take_expired(self) -> int:
        expired, self.unreported = self.unreported, 0
        return expired

    def _commit(self, queue: Queue, after: int, fate: str, now: int) -> None:
        assert after >= queue.committed, "committed never decreases"
        queue.fates |= dict.fromkeys(range(queue.committed, after), fate)
        queue.committed = after
        queue.free_at = FAR_PAST
        queue.attempts, queue.is_exhausted, queue.last_consumed = 0, False, now

    # ReceiveRequest.

    def replay(self, attempt: Shape, now: int) -> Lease | str | None:
        """Return the lease of this attempt, `mismatch` for other parameters, or None without a lease."""
        lease = self.held_by(attempt[0], now)
        return "mismatch" if lease is not None and lease.attempt != attempt else lease

    def held_by(self, attempt: str, now: int) -> Lease | None:
        """Return the lease of an attempt, whatever its parameters."""
        for queue in self.queues.values():
            lease = queue.newest
            if lease and lease.attempt and lease.attempt[0] == attempt and self._is_live(lease, now):
                return lease
        return None

    @staticmethod
    def _is_live(lease: Lease, now: int) -> bool:
        return not (lease.spent_by or lease.is_swept or lease.is_dead) and now < lease.until

    def choose(self, now: int, closed: Iterable[str] = ()) -> list[str]:
        """Return the queues that may be granted now. There are several only if the rules do not decide."""
        free = {
            name: queue
            for name, queue in self.queues.items()
            if now >= queue.free_at and not queue.is_exhausted and queue.backlog() > 0 and name not in closed
        }
        if not free:
            return []
        oldest = min(queue.waiting_since for queue in free.values())
        if oldest + AGEING <= now:
            latest = oldest + self.topic.store_time_error
            return [name for name, queue in free.items() if queue.waiting_since <= latest]
        best = max((queue.backlog(), -queue.last_consumed) for queue in free.values())
        return [name for name, queue in free.items() if (queue.backlog(), -queue.last_consumed) == best]

    def size(self, name: str, most: int) -> int:
        """Return the number of messages that a grant of this queue has, before tokens are taken."""
        queue = self.queues[name]
        first, end = queue.seen
        attempt = 1 if queue.committed < first else queue.attempts + 1
        if attempt > self.rules.max_attempts // 2:
            most = 1
        return min(most, end - max(queue.committed, first))

    def grant(self, name: str, size: int, visibility: int, attempt: Shape | None, now: int) -> Lease:
        """Lease a queue. Messages that retention deleted before are expired."""
        queue = self.queues[name]
        newest = queue.newest
        assert newest is None or not self._is_live(newest, now), "two holders of one queue"
        first = queue.seen[0]
        if queue.committed < first:
            queue.fates |= dict.fromkeys(range(queue.committed, first), "expired")
            queue.committed, queue.attempts = first, 0
        queue.attempts += 1
        until = now + visibility
        lease = Lease(name, queue.committed, queue.committed + size, until, now, queue.attempts, attempt, self)
        self._first_deliveries_increase(queue, lease)
        queue.newest = lease
        queue.leases.append(lease)
        queue.free_at = until + self.rules.delay(queue.attempts)
        queue.is_exhausted = queue.attempts >= self.rules.max_attempts
        queue.waiting_since = now
        return lease

    @staticmethod
    def _first_deliveries_increase(queue: Queue, lease: Lease) -> None:
        passed_over = range(queue.first_delivered, lease.start)
        assert all(queue.fates[offset] in {"expired", "skipped"} for offset in passed_over)
        queue.first_delivered = max(queue.first_delivered, lease.next)

    def release(self, lease: Lease, now: int) -> None:
        """Release the queue at once: the pull found nothing, and the delivery does not count."""
        queue = self.queues[lease.queue]
        lease.until, lease.attempt = now, None
        queue.free_at = FAR_PAST
        queue.attempts -= 1
        queue.is_exhausted = False

    def skip_emptied(self, now: int) -> int:
        """Report free queues that retention emptied, if there is nothing else. Return how many messages."""
        expired = 0
        for queue in self.queues.values():
            first, end = queue.seen
            if queue.committed < first and end <= first and now >= queue.free_at and not queue.is_exhausted:
                expired += first - queue.committed
                queue.fates |= dict.fromkeys(range(queue.committed, first), "expired")
                queue.committed, queue.attempts = first, 0
        return expired

    def is_busy(self) -> bool:
        return any(queue.backlog() > 0 for queue in self.queues.values())

    # Settle.

    def settle(self, verb: str, lease: Lease, now: int, **more: Any) -> str:
        """Return the outcome and apply the settlement."""
        queue = self.queues[lease.queue]
        if lease.spent_by:
            return "duplicate" if lease.spent_by == verb else "lost"
        if lease.is_swept:
            return "gone"
        is_over = lease is not queue.newest or lease.is_dead
        if is_over or lease.start != queue.committed:
            return "lost" if is_over and lease.start >= queue.seen[0] else "gone"
        if verb == "extend":
            until = now + more["visibility"]
            if until > lease.granted_at + MAX_HOLD:
                return "invalid"
        outcome = "applied" if now < lease.until else "late_applied"
        if verb == "extend":
            lease.until = until
            queue.free_at = until + self.rules.delay(queue.attempts)
            return outcome
        lease.spent_by = verb
        if verb == "ack":
            through = more.get("through")
            self._commit(queue, lease.next if through is None else through + 1, "acked", now)
        else:
            self._nack(lease, queue, now, more.get("delay"))
        return outcome

    def _nack(self, lease: Lease, queue: Queue, now: int, delay: int | None) -> None:
        if queue.is_exhausted and not self.rules.is_blocking:
            self._settle_dead(lease.queue, queue, now)
            return
        queue.free_at = now + (self.rules.delay(queue.attempts) if delay is None else delay)

    # Operate.

    def seek(self, targets: dict[str, int], now: int) -> None:
        for name, target in targets.items():
            queue = self.queues[name]
            for offset in range(target, queue.committed):
                queue.fates.pop(offset)
            queue.fates |= dict.fromkeys(range(queue.committed, target), "skipped")
            queue.first_delivered = target
            queue.committed, queue.free_at = target, FAR_PAST
            queue.attempts, queue.is_exhausted, queue.waiting_since = 0, False, now
            for lease in queue.leases:
                lease.is_swept = True

    def lag(self, name: str, now: int) -> dict[str, Any]:
        """Return what GET /lag must return for a queue."""
        queue = self.queues[name]
        first, end = self.topic.first[name], self.topic.end(name)
        lease = queue.newest
        batch = 0
        if lease and now < queue.free_at:
            batch = max(lease.next - max(queue.committed, first), 0)
        is_leased = lease is not None and self._is_live(lease, now)
        return {
            "queue": name,
            "min": first,
            "max": end,
            "committed": queue.committed,
            "ready": max(end - max(queue.committed, first) - batch, 0),
            "leased": batch if is_leased else 0,
            "waiting": 0 if is_leased else batch,
            "attempts": queue.attempts,
            "blocked": queue.is_exhausted and now >= queue.free_at,
        }
