"""Queue and broadcast mode against the reference model: Hypothesis plays consumers, publishers, operators and time.

Every answer is foretold by the model (queue_model.py) and compared. The gateway is the real one, over the real store,
on a clock that the test moves, and restarted now and then. A mode of its own (message mode) gets a file and a model of
its own; GatewayDriver and Topic are shared.
"""

import sys
from typing import Any, ClassVar

import pytest
from gateway_driver import GatewayDriver, Servers
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from queue_model import Bucket, Lease, Place, Published, Rules, Shape, Topic

from mqgate.core.message import instant, milliseconds
from mqgate.core.times import format_instant, parse_instant
from mqgate.stack import Stack
from random_examples import examples

QUEUES = 3
RETENTION = 600_000
# Message keys by the queue that their CRC-32 picks of three.
KEYS = {"local:0": "a", "local:1": "g", "local:2": "b"}
PLACES = ["work/", "strict/", "limited/", "all/ada", "all/ben"]
GROUPS = ["work", "strict", "limited", "all"]
VISIBILITIES = [None, 1_000, 5_000, 60_000]
Answer = dict[str, Any]

places = st.sampled_from(PLACES)
sizes = st.integers(1, 6)
waits = st.sampled_from([0.001, 0.5, 1, 2, 5, 30, 31, 61])
# Mostly the newest receipts, sometimes old ones.
receipts = st.one_of(st.integers(0, 3), st.integers(0, 40))
wishes = st.fixed_dictionaries(
    {
        "place": places,
        "most": sizes,
        "visibility": st.sampled_from(VISIBILITIES),
        "attempt": st.sampled_from([None, None, "a1", "a2"]),
        "carried": st.lists(receipts, max_size=2),
    }
)


def rules_of(group: str) -> tuple[Rules, Answer]:
    """A group's settings, for the model and for the gateway."""
    if group == "work":
        return Rules(group, "queue", 30_000, 4), {"mode": "queue", "maxAttempts": 4}
    if group == "strict":
        settings = {"mode": "queue", "maxAttempts": 2, "onPoison": "block", "backoff": ["2s", "5s"], "visibility": "5s"}
        return Rules(group, "queue", 5_000, 2, backoff=(2_000, 5_000), is_blocking=True), settings
    if group == "limited":
        settings = {"mode": "queue", "rateLimit": {"rate": 3, "burst": 5}}
        return Rules(group, "queue", 30_000, 16, bucket=Bucket(3, 5, 5, 0)), settings
    settings = {"mode": "broadcast", "maxAttempts": 2, "clientTtl": "1h", "backoff": ["3s"]}
    return Rules(group, "broadcast", 30_000, 2, backoff=(3_000,), client_ttl=3_600_000), settings


class QueueMachine(RuleBasedStateMachine):
    # On RocketMQ stored times are the broker's own, later than the model's clock, and retention is its business.
    servers: ClassVar[Servers | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.gateway = GatewayDriver(self.servers)
        self.topic = Topic.of(QUEUES)
        self.rules: dict[str, Rules] = {}
        self.places: dict[str, Place] = {}
        self.leases: list[Lease] = []
        self.attempts: list[Answer] = []
        self.published = 0

    @property
    def now(self) -> int:
        return self.gateway.clock()

    # Set-up, and what is left at the end.

    @initialize(counts=st.tuples(*[st.integers(1, 12)] * QUEUES))
    def register(self, counts: tuple[int, ...]) -> None:
        retention = {} if self.servers else {"retention": RETENTION / 1000}
        self.gateway.done("PUT", "/v1/topics/t", {"queues": QUEUES, **retention})
        for group in GROUPS:
            self._register(group)
        for place in PLACES:
            self.received(place, 1, None, None, [])
        for queue, count in zip(KEYS, counts, strict=True):
            self.publish(queue, count)

    def _register(self, group: str) -> None:
        self.rules[group], body = rules_of(group)
        self.gateway.done("PUT", f"/v1/groups/{group}", {"topic": "t", **body})
        if self.rules[group].mode == "queue":
            self.places[f"{group}/"] = Place(self.rules[group], "", self.topic, dict(self.topic.first), self.now)

    def teardown(self) -> None:
        try:
            # After a failure there is nothing to learn from the rest, and it would hide the failure.
            if sys.exc_info()[0] is None and self.rules:
                self.everything_is_delivered_in_the_end()
        finally:
            self.gateway.close()

    def everything_is_delivered_in_the_end(self) -> None:
        """Invariants 1, 4 and 13: with a polling client every queue that is not blocked is emptied."""
        for group in GROUPS:
            self.pause_or_resume(group, is_paused=False)
        self.gateway.clock.advance(125)
        for place in PLACES:
            self.lag(place)
            for _ in range(500):
                self.gateway.clock.advance(2)
                if not self.received(place, most=100, visibility=None, attempt=None, carried=[0]):
                    break
            self.lag(place)
            for queue in self.places[place].queues.values():
                assert queue.backlog() <= 0 or queue.is_exhausted
        for group in GROUPS:
            self.dead_letters(group)

    # Publishers.

    @rule(queue=st.sampled_from([*KEYS, None]), count=sizes)
    def publish_some(self, queue: str | None, count: int) -> None:
        self.publish(queue, count)

    def publish(self, queue: str | None, count: int) -> None:
        key = KEYS[queue] if queue else None
        messages: list[Answer] = []
        for _ in range(count):
            self.published += 1
            messages.append({"body": f"message {self.published}", **({"key": key} if key else {})})

        answer = self.gateway.done("POST", "/v1/topics/t/messages", {"messages": messages})

        for message, stored in zip(messages, answer["results"], strict=True):
            assert queue in {None, stored["queue"]}
            assert stored["offset"] == self.topic.end(stored["queue"]), "offsets are dense, in acceptance order"
            assert self.servers or stored["storedAt"] == format_instant(instant(self.now))
            # A broker has a clock of its own, which nobody moves.
            told_at = milliseconds(parse_instant(stored["storedAt"], "storedAt"))
            self.topic.queues[stored["queue"]].append(Published(stored["id"], message["body"], key, self.now, told_at))

    # Consumers.

    def place(self, name: str, *, is_polling: bool = False) -> tuple[Place | None, bool]:
        """The model's place, kept alive; a broadcast client idle for too long has none; True: made just now."""
        place = self.places.get(name)
        group, _, client = name.partition("/")
        rules = self.rules[group]
        if place and rules.client_ttl and place.last_seen + rules.client_ttl <= self.now:
            place = self.places.pop(name) and None
        is_new = place is None and is_polling
        if is_new:
            starts = {queue: self.topic.end(queue) for queue in self.topic.queues}
            place = self.places[name] = Place(rules, client, self.topic, starts, self.now)
        if place:
            place.last_seen = self.now
        return place, is_new

    @rule(wish=wishes)
    def receive(self, wish: Answer) -> None:
        self.received(**wish)

    # Rules are drawn evenly; consumers are busier than operators.
    @rule(wish=wishes)
    def receive_more(self, wish: Answer) -> None:
        self.received(**wish)

    @rule(wish=wishes, fate=st.sampled_from(["ack", "nack"]), seconds=waits)
    def work(self, wish: Answer, fate: str, seconds: float) -> None:
        """A consumer as it should be: receive, take its time, settle."""
        lease = self.received(**wish)
        self.gateway.clock.advance(seconds)
        if lease is not None:
            self.settle(fate, lease, {})

    @precondition(lambda self: self.attempts)
    @rule(back=st.integers(0, 2), is_changed=st.sampled_from([False, False, False, True]))
    def repeat_an_attempt(self, back: int, is_changed: bool) -> None:
        """A client that did not hear the answer asks again; one with a bug asks for something else."""
        wish = self.attempts[-1 - back % len(self.attempts)]
        self.received(**(wish | {"most": wish["most"] + 1} if is_changed else wish))

    @rule(place=places, count=st.integers(1, 4), seconds=waits)
    def fail_again_and_again(self, place: str, count: int, seconds: float) -> None:
        """A consumer that cannot cope: deliveries pass without an answer, or with a nack."""
        for _ in range(count):
            lease = self.received(place, 4, 1_000, None, [])
            if lease is not None and seconds < 2:
                self.settle("nack", lease, {})
            self.gateway.clock.advance(seconds)

    def received(
        self, place: str, most: int, visibility: int | None, attempt: str | None, carried: list[int]
    ) -> Lease | None:
        group, _, client = place.partition("/")
        rules = self.rules[group]
        given = [self.lease(back) for back in carried] if self.leases else []
        acks = [lease for lease in given if lease.place.rules.group == group]
        wish: Answer = {"max": most, "ack": [lease.receipt for lease in acks]}
        if visibility:
            wish["visibility"] = f"{visibility}ms"
        if attempt:
            wish["attemptId"] = attempt
            repeat = {"place": place, "most": most, "visibility": visibility, "attempt": attempt, "carried": []}
            self.attempts.append(repeat)
        if client:
            wish["clientId"] = client
        shape = (attempt, most, visibility) if attempt else None
        if shape and self.is_mismatch(place, shape, acks):
            status, answer = self.gateway.call("POST", f"/v1/groups/{group}/receive", wish)
            assert (status, answer["code"]) == (409, "attempt_mismatch")
            return None

        answer = self.gateway.done("POST", f"/v1/groups/{group}/receive", wish)

        here, is_new = self.place(place, is_polling=True)
        assert here is not None
        assert answer.get("registered", False) == is_new
        # What a broadcast client carries of another's is foreign.
        outcomes = [self.settled("ack", lease) if lease.place.client == client else "invalid" for lease in acks]
        assert [result["outcome"] for result in answer["acked"]] == outcomes
        return self.delivered(here, answer, most, visibility or rules.visibility, shape)

    def is_mismatch(self, place: str, shape: Shape, acks: list[Lease]) -> bool:
        here = self.places.get(place)
        idle = self.rules[place.partition("/")[0]].client_ttl
        if here is None or (idle and here.last_seen + idle <= self.now):
            return False
        held = here.held_by(shape[0], self.now)
        # The acks come first: one of them may settle the very lease.
        return held is not None and held.attempt != shape and held not in acks

    def delivered(self, here: Place, answer: Answer, most: int, visibility: int, shape: Shape | None) -> Lease | None:
        """Compare an answer with what the model says must be in it."""
        now, rules = self.now, here.rules
        repeated = here.replay(shape, now) if shape else None
        if isinstance(repeated, Lease):
            if repeated.start >= self.topic.first[repeated.queue]:
                self.shows(answer, repeated)
                assert answer.get("expired", 0) == here.tell()
                assert answer["lease"]["receipt"] == repeated.receipt
                return repeated
            # Retention took it in the meantime: the repeat is a new receive.
            here.take_back(repeated, now)
            if rules.bucket:
                rules.bucket.tokens += repeated.next - repeated.start
        here.see_heads(now)
        if rules.is_paused:
            return self.empty(answer, "paused", here.tell())
        closed = here.bury_exhausted(now)
        allowed = here.choose(now, closed) or here.choose(now)
        if not allowed:
            expired = here.skip_emptied(now) + here.tell()
            return self.empty(answer, "busy" if here.is_busy() else "ok", expired)
        if rules.bucket:
            rules.bucket.refill(now)
            if rules.bucket.tokens < 1:
                return self.empty(answer, "rate_limited", here.tell())
        assert "lease" in answer, f"{allowed} could be granted: {answer}"
        queue = answer["lease"]["queue"]
        assert queue in allowed
        size = here.size(queue, most)
        if rules.bucket:
            size = min(size, int(rules.bucket.tokens))
            rules.bucket.tokens -= size
        expired = max(here.queues[queue].seen[0] - here.queues[queue].committed, 0)
        assert answer.get("expired", 0) == expired + here.tell()
        lease = here.grant(queue, size, visibility, shape, now)
        lease.receipt = answer["lease"]["receipt"]
        assert lease.receipt not in {other.receipt for other in self.leases}
        self.leases.append(lease)
        self.shows(answer, lease)
        return lease

    def empty(self, answer: Answer, state: str, expired: int = 0) -> None:
        assert (answer["messages"], answer["state"]) == ([], state)
        assert "lease" not in answer
        assert answer.get("expired", 0) == expired

    def shows(self, answer: Answer, lease: Lease) -> None:
        """The lease, and exactly the messages that were published there."""
        shown = answer["lease"]
        until = format_instant(instant(lease.until))
        assert (shown["queue"], shown["start"], shown["next"]) == (lease.queue, lease.start, lease.next)
        assert (shown["delivery"], shown["leasedUntil"]) == (lease.delivery, until)
        assert lease.delivery <= lease.place.rules.max_attempts
        wanted = self.topic.queues[lease.queue][lease.start : lease.next]
        assert [(message["id"], message["body"], message["key"]) for message in answer["messages"]] == [
            (message.id, message.body, message.key) for message in wanted
        ]
        assert [message["offset"] for message in answer["messages"]] == list(range(lease.start, lease.next))

    def lease(self, back: int) -> Lease:
        """One of the batches ever handed out, counted from the newest."""
        return self.leases[-1 - back % len(self.leases)]

    def settled(self, verb: str, lease: Lease, **more: Any) -> str:
        """What the model says of a settlement: state that is gone takes its receipts with it."""
        name = f"{lease.place.rules.group}/{lease.place.client}"
        here, _ = self.place(name)
        if here is not lease.place:
            return "gone"
        return here.settle(verb, lease, self.now, **more)

    def settle(self, verb: str, lease: Lease, body: Answer, **more: Any) -> None:
        group = lease.place.rules.group
        status, answer = self.gateway.call("POST", f"/v1/groups/{group}/{verb}", {"receipt": lease.receipt, **body})

        outcome = self.settled(verb, lease, **more)
        assert answer["outcome"] == outcome
        statuses = {"lost": 409, "gone": 410, "invalid": 400}
        assert status == statuses.get(outcome, 200)
        if verb == "extend" and status == 200:
            assert answer["leasedUntil"] == format_instant(instant(lease.until))

    @precondition(lambda self: self.leases)
    @rule(back=receipts)
    def ack(self, back: int) -> None:
        self.settle("ack", self.lease(back), {})

    @precondition(lambda self: self.leases)
    @rule(back=receipts, share=st.integers(0, 5))
    def ack_a_prefix(self, back: int, share: int) -> None:
        lease = self.lease(back)
        through = lease.start + share % (lease.next - lease.start)
        self.settle("ack", lease, {"through": through}, through=through)

    @precondition(lambda self: self.leases)
    @rule(back=receipts, delay=st.sampled_from([None, None, 0, 1_000, 60_000]))
    def nack(self, back: int, delay: int | None) -> None:
        body = {} if delay is None else {"delay": delay / 1000}
        self.settle("nack", self.lease(back), body, delay=delay)

    @precondition(lambda self: self.leases)
    @rule(back=receipts, visibility=st.sampled_from([1_000, 45_000]))
    def extend(self, back: int, visibility: int) -> None:
        lease = self.lease(back)
        if not self.would_revive_an_attempt(lease):
            self.settle("extend", lease, {"visibility": visibility / 1000}, visibility=visibility)

    def would_revive_an_attempt(self, lease: Lease) -> bool:
        """An ended lease whose attempt holds another by now: which of the two a repeat shows is left open."""
        if lease.attempt is None or self.now < lease.until:
            return False
        return lease.place.replay(lease.attempt, self.now) is not None

    # Operators.

    @rule(place=places)
    def lag(self, place: str) -> None:
        """Invariants 4, 8 and 10: what the gateway says of every queue is what the model says."""
        group, _, client = place.partition("/")
        query = f"clientId={client}" if client else ""
        status, answer = self.gateway.call("GET", f"/v1/groups/{group}/lag", query=query)

        here, _ = self.place(place)
        if here is None:
            assert (status, answer["code"]) == (404, "client_not_found")
            return
        here.see_heads(self.now)
        here.bury_exhausted(self.now)
        expected = [here.lag(queue, self.now) for queue in here.queues]
        assert [{name: queue[name] for name in expected[0]} for queue in answer["queues"]] == expected
        assert answer["lag"] == sum(
            position["ready"] + position["leased"] + position["waiting"] for position in expected
        )
        for queue in here.queues.values():
            assert set(queue.fates) == set(range(queue.committed))

    @rule(group=st.sampled_from(GROUPS))
    def dead_letters(self, group: str) -> None:
        """Invariant 17: exactly one dead letter for each message that failed for the last time."""
        for place in PLACES:
            if place.startswith(f"{group}/"):
                self.lag(place)

        letters = self.gateway.done("GET", f"/v1/groups/{group}/dead-letters", query="limit=1000")["items"]

        found = {
            (letter["clientId"] or "", letter["origin"]["queue"], letter["origin"]["offset"]): letter["deliveries"]
            for letter in letters
        }
        assert len(found) == len(letters)
        assert found == self.rules[group].dead
        for client, queue, offset in found:
            (letter,) = [
                letter
                for letter in letters
                if (letter["clientId"] or "", letter["origin"]["queue"], letter["origin"]["offset"])
                == (client, queue, offset)
            ]
            assert letter["id"] == self.topic.queues[queue][offset].id

    @rule(
        place=places,
        to=st.one_of(
            st.sampled_from(["earliest", "latest"]),
            st.integers(0, 900).map(lambda seconds: -seconds),
            st.tuples(st.sampled_from(list(KEYS)), st.integers(0, 100)),
        ),
        is_dry_run=st.booleans(),
    )
    def seek(self, place: str, to: Any, is_dry_run: bool) -> None:
        group, _, client = place.partition("/")
        target, targets = self.target(to)
        body = {"to": target, "dryRun": is_dry_run, **({"clientId": client} if client else {})}
        status, answer = self.gateway.call("POST", f"/v1/groups/{group}/seek", body)

        here, _ = self.place(place)
        if here is None:
            assert (status, answer["code"]) == (404, "client_not_found")
            return
        here.see_heads(self.now)
        moved = {queue["queue"]: (queue["from"], queue["to"]) for queue in answer["queues"]}
        assert moved == {queue: (here.queues[queue].committed, offset) for queue, offset in targets.items()}
        if not is_dry_run:
            here.seek(targets, self.now)

    def target(self, to: Any) -> tuple[Any, dict[str, int]]:
        """What is written into the request, and the offsets that it means."""
        topic = self.topic
        if to == "earliest":
            return to, dict(topic.first)
        if to == "latest":
            return to, {queue: topic.end(queue) for queue in topic.queues}
        if isinstance(to, int):
            text = format_instant(instant(self.now + to * 1000))
            if self.servers:
                return text, dict(topic.first)
            at = milliseconds(parse_instant(text, "to"))
            return text, {queue: topic.offset_at(queue, at) for queue in topic.queues}
        queue, share = to
        offset = topic.first[queue] + share % (topic.end(queue) - topic.first[queue] + 1)
        return {queue: offset}, {queue: offset}

    @rule(group=st.sampled_from(GROUPS), is_paused=st.sampled_from([True, False, False]))
    def pause_or_resume(self, group: str, is_paused: bool) -> None:
        self.gateway.done("POST", f"/v1/groups/{group}/{'pause' if is_paused else 'resume'}", {"reason": "model"})
        self.rules[group].is_paused = is_paused

    def register_anew(self, group: str) -> None:
        """Another incarnation: nothing of the old one counts any more."""
        self.gateway.done("DELETE", f"/v1/groups/{group}")
        for place in [name for name in self.places if name.startswith(f"{group}/")]:
            del self.places[place]
        self._register(group)

    # Time, and the process.

    @rule(seconds=waits)
    def wait(self, seconds: float) -> None:
        self.gateway.clock.advance(seconds)

    @rule(what=st.sampled_from(["retention", "restart", "long wait", "register work", "register all", "restart"]))
    def something_rare(self, what: str) -> None:
        if what == "retention":
            self.gateway.clock.advance(RETENTION / 2_000)
            if not self.servers:
                self.forget_old_messages()
        elif what == "restart":
            self.gateway.restart()
            for place in self.places.values():
                place.tell()
        elif what == "long wait":
            self.gateway.clock.advance(3_600)
        else:
            self.register_anew(what.partition(" ")[2])

    def forget_old_messages(self) -> None:
        gone = self.gateway.forget_old_messages()

        assert gone == self.topic.forget_before(self.now - RETENTION)


class QueueMachineInProduction(QueueMachine):
    pass


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestQueueAndBroadcast(QueueMachine.TestCase):
    settings = examples(50, steps=50)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.rocketmq
class TestQueueAndBroadcastInProduction(QueueMachineInProduction.TestCase):
    # A broker takes its time for topics that come and go with every example.
    settings = examples(8, steps=50)

    @pytest.fixture(autouse=True)
    def servers(self, rocketmq: Stack, redis: Stack, postgres: Stack) -> None:
        QueueMachineInProduction.servers = rocketmq, redis, postgres
