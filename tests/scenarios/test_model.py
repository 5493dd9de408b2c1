"""Queue and broadcast mode against the reference model: Hypothesis plays consumers, publishers, operators and time.

The model (queue_model.py) predicts every response. The gateway and its store are real, on a clock that the test moves,
and are restarted now and then. Message mode has a file and a model of its own; GatewayDriver and Topic are shared.
"""

import sys
from typing import Any, ClassVar

import pytest
from gateway_driver import GatewayDriver, Servers
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from queue_model import Bucket, Lease, Published, Rules, Scope, Shape, Topic

from mqgate.consumption import receive as receive_step
from mqgate.core.message import instant, milliseconds
from mqgate.core.times import format_instant, parse_instant
from mqgate.stack import Stack
from random_examples import examples

QUEUES = 3
RETENTION = 600_000
# Message keys by the queue that their CRC-32 picks of three.
KEYS = {"local:0": "a", "local:1": "g", "local:2": "b"}
SCOPES = ["work/", "strict/", "limited/", "all/ada", "all/ben"]
GROUPS = ["work", "strict", "limited", "all"]
VISIBILITIES = [None, 1_000, 5_000, 60_000]
Answer = dict[str, Any]

scopes = st.sampled_from(SCOPES)
sizes = st.integers(1, 6)
waits = st.sampled_from([0.001, 0.5, 1, 2, 5, 30, 31, 61])
# Mostly the newest receipts, sometimes old ones.
receipts = st.one_of(st.integers(0, 3), st.integers(0, 40))
wishes = st.fixed_dictionaries(
    {
        "scope": scopes,
        "most": sizes,
        "visibility": st.sampled_from(VISIBILITIES),
        "attempt": st.sampled_from([None, None, "a1", "a2"]),
        "carried": st.lists(receipts, max_size=2),
    }
)


def rules_of(group: str) -> tuple[Rules, Answer]:
    """Return the settings of a group, for the model and for the gateway."""
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
    store_time_error: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.gateway = GatewayDriver(self.servers)
        self.topic = Topic.of(QUEUES)
        self.topic.store_time_error = self.store_time_error
        self.rules: dict[str, Rules] = {}
        self.scopes: dict[str, Scope] = {}
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
        for scope in SCOPES:
            self.received(scope, 1, None, None, [])
        for queue, count in zip(KEYS, counts, strict=True):
            self.publish(queue, count)

    def _register(self, group: str) -> None:
        self.rules[group], body = rules_of(group)
        self.gateway.done("PUT", f"/v1/groups/{group}", {"topic": "t", **body})
        if self.rules[group].mode == "queue":
            self.scopes[f"{group}/"] = Scope(self.rules[group], "", self.topic, dict(self.topic.first), self.now)

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
        for scope in SCOPES:
            self.lag(scope)
            for _ in range(500):
                self.gateway.clock.advance(2)
                if not self.received(scope, most=100, visibility=None, attempt=None, carried=[0]):
                    break
            self.lag(scope)
            for queue in self.scopes[scope].queues.values():
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

        response = self.gateway.done("POST", "/v1/topics/t/messages", {"messages": messages})

        for message, stored in zip(messages, response["results"], strict=True):
            assert queue in {None, stored["queue"]}
            assert stored["offset"] == self.topic.end(stored["queue"]), "offsets are dense, in acceptance order"
            assert self.servers or stored["storedAt"] == format_instant(instant(self.now))
            # A broker has its own clock, which the test cannot move.
            told_at = milliseconds(parse_instant(stored["storedAt"], "storedAt"))
            self.topic.queues[stored["queue"]].append(Published(stored["id"], message["body"], key, self.now, told_at))

    # Consumers.

    def scope(self, name: str, *, is_polling: bool = False) -> tuple[Scope | None, bool]:
        """Return the scope in the model and keep it alive, and whether it was created now. An idle client has none."""
        scope = self.scopes.get(name)
        group, _, client = name.partition("/")
        rules = self.rules[group]
        if scope and rules.client_ttl and scope.last_seen + rules.client_ttl <= self.now:
            scope = self.scopes.pop(name) and None
        is_new = scope is None and is_polling
        if is_new:
            starts = {queue: self.topic.end(queue) for queue in self.topic.queues}
            scope = self.scopes[name] = Scope(rules, client, self.topic, starts, self.now)
        if scope:
            scope.last_seen = self.now
        return scope, is_new

    @rule(wish=wishes)
    def receive(self, wish: Answer) -> None:
        self.received(**wish)

    # Rules are drawn evenly; consumers are busier than operators.
    @rule(wish=wishes)
    def receive_more(self, wish: Answer) -> None:
        self.received(**wish)

    @rule(wish=wishes, fate=st.sampled_from(["ack", "nack"]), seconds=waits)
    def work(self, wish: Answer, fate: str, seconds: float) -> None:
        """A correct consumer: it receives, takes its time and settles."""
        lease = self.received(**wish)
        self.gateway.clock.advance(seconds)
        if lease is not None:
            self.settle(fate, lease, {})

    @precondition(lambda self: self.attempts)
    @rule(back=st.integers(0, 2), is_changed=st.sampled_from([False, False, False, True]))
    def repeat_an_attempt(self, back: int, is_changed: bool) -> None:
        """A client that did not get the response repeats the attempt. One with a bug changes its parameters."""
        wish = self.attempts[-1 - back % len(self.attempts)]
        self.received(**(wish | {"most": wish["most"] + 1} if is_changed else wish))

    @rule(scope=scopes, count=st.integers(1, 4), seconds=waits)
    def fail_repeatedly(self, scope: str, count: int, seconds: float) -> None:
        """A failing consumer: its deliveries end in a nack or in a lease expiry."""
        for _ in range(count):
            lease = self.received(scope, 4, 1_000, None, [])
            if lease is not None and seconds < 2:
                self.settle("nack", lease, {})
            self.gateway.clock.advance(seconds)

    def received(
        self, scope: str, most: int, visibility: int | None, attempt: str | None, carried: list[int]
    ) -> Lease | None:
        group, _, client = scope.partition("/")
        rules = self.rules[group]
        given = [self.lease(back) for back in carried] if self.leases else []
        acks = [lease for lease in given if lease.scope.rules.group == group]
        wish: Answer = {"max": most, "ack": [lease.receipt for lease in acks]}
        if visibility:
            wish["visibility"] = f"{visibility}ms"
        if attempt:
            wish["attemptId"] = attempt
            repeat = {"scope": scope, "most": most, "visibility": visibility, "attempt": attempt, "carried": []}
            self.attempts.append(repeat)
        if client:
            wish["clientId"] = client
        shape = (attempt, most, visibility) if attempt else None
        if shape and self.is_mismatch(scope, shape, acks):
            status, response = self.gateway.call("POST", f"/v1/groups/{group}/receive", wish)
            assert (status, response["code"]) == (409, "attempt_mismatch")
            return None

        response = self.gateway.done("POST", f"/v1/groups/{group}/receive", wish)

        here, is_new = self.scope(scope, is_polling=True)
        assert here is not None
        assert response.get("registered", False) == is_new
        # What a broadcast client carries of another's is foreign.
        outcomes = [self.settled("ack", lease) if lease.scope.client == client else "invalid" for lease in acks]
        assert [result["outcome"] for result in response["acked"]] == outcomes
        return self.delivered(here, response, most, visibility or rules.visibility, shape)

    def is_mismatch(self, scope: str, shape: Shape, acks: list[Lease]) -> bool:
        here = self.scopes.get(scope)
        idle = self.rules[scope.partition("/")[0]].client_ttl
        if here is None or (idle and here.last_seen + idle <= self.now):
            return False
        held = here.held_by(shape[0], self.now)
        # The acks come first: one of them may settle the very lease.
        return held is not None and held.attempt != shape and held not in acks

    def delivered(self, here: Scope, response: Answer, most: int, visibility: int, shape: Shape | None) -> Lease | None:
        """Compare a response with the one that the model predicts."""
        now, rules = self.now, here.rules
        repeated = here.replay(shape, now) if shape else None
        if isinstance(repeated, Lease):
            if repeated.start >= self.topic.first[repeated.queue]:
                self.shows(response, repeated)
                assert response.get("expired", 0) == here.take_expired()
                assert response["lease"]["receipt"] == repeated.receipt
                return repeated
            # Retention took it in the meantime: the repeat is a new receive.
            here.release(repeated, now)
            if rules.bucket:
                rules.bucket.tokens += repeated.next - repeated.start
        here.update_bounds(now)
        if rules.is_paused:
            return self.empty(response, "paused", here.take_expired())
        closed = here.settle_exhausted(now)
        allowed = here.choose(now, closed) or here.choose(now)
        if not allowed:
            expired = here.skip_emptied(now) + here.take_expired()
            return self.empty(response, "busy" if here.is_busy() else "ok", expired)
        if rules.bucket:
            rules.bucket.refill(now)
            if rules.bucket.tokens < 1:
                return self.empty(response, "rate_limited", here.take_expired())
        assert "lease" in response, f"{allowed} could be granted: {response}"
        queue = response["lease"]["queue"]
        assert queue in allowed
        size = here.size(queue, most)
        if rules.bucket:
            size = min(size, int(rules.bucket.tokens))
            rules.bucket.tokens -= size
        expired = max(here.queues[queue].seen[0] - here.queues[queue].committed, 0)
        assert response.get("expired", 0) == expired + here.take_expired()
        lease = here.grant(queue, size, visibility, shape, now)
        lease.receipt = response["lease"]["receipt"]
        assert lease.receipt not in {other.receipt for other in self.leases}
        self.leases.append(lease)
        self.shows(response, lease)
        return lease

    def empty(self, response: Answer, state: str, expired: int = 0) -> None:
        assert (response["messages"], response["state"]) == ([], state)
        assert "lease" not in response
        assert response.get("expired", 0) == expired

    def shows(self, response: Answer, lease: Lease) -> None:
        """Assert that the lease covers exactly the messages that were published there."""
        shown = response["lease"]
        until = format_instant(instant(lease.until))
        assert (shown["queue"], shown["start"], shown["next"]) == (lease.queue, lease.start, lease.next)
        assert (shown["delivery"], shown["leasedUntil"]) == (lease.delivery, until)
        assert lease.delivery <= lease.scope.rules.max_attempts
        wanted = self.topic.queues[lease.queue][lease.start : lease.next]
        assert [(message["id"], message["body"], message["key"]) for message in response["messages"]] == [
            (message.id, message.body, message.key) for message in wanted
        ]
        assert [message["offset"] for message in response["messages"]] == list(range(lease.start, lease.next))

    def lease(self, back: int) -> Lease:
        """Return one of the batches granted so far, counted from the newest."""
        return self.leases[-1 - back % len(self.leases)]

    def settled(self, verb: str, lease: Lease, **more: Any) -> str:
        """Return the outcome that the model predicts. Deleted state has no valid receipts."""
        name = f"{lease.scope.rules.group}/{lease.scope.client}"
        here, _ = self.scope(name)
        if here is not lease.scope:
            return "gone"
        return here.settle(verb, lease, self.now, **more)

    def settle(self, verb: str, lease: Lease, body: Answer, **more: Any) -> None:
        group = lease.scope.rules.group
        status, response = self.gateway.call("POST", f"/v1/groups/{group}/{verb}", {"receipt": lease.receipt, **body})

        outcome = self.settled(verb, lease, **more)
        assert response["outcome"] == outcome
        statuses = {"lost": 409, "gone": 410, "invalid": 400}
        assert status == statuses.get(outcome, 200)
        if verb == "extend" and status == 200:
            assert response["leasedUntil"] == format_instant(instant(lease.until))

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
        """An expired lease whose attempt has another one by now: which of the two a repeat returns is not defined."""
        if lease.attempt is None or self.now < lease.until:
            return False
        return lease.scope.replay(lease.attempt, self.now) is not None

    # Operators.

    @rule(scope=scopes)
    def lag(self, scope: str) -> None:
        """Invariants 4, 8 and 10: the lag of every queue equals that of the model."""
        group, _, client = scope.partition("/")
        query = f"clientId={client}" if client else ""
        status, response = self.gateway.call("GET", f"/v1/groups/{group}/lag", query=query)

        here, _ = self.scope(scope)
        if here is None:
            assert (status, response["code"]) == (404, "client_not_found")
            return
        here.update_bounds(self.now)
        here.settle_exhausted(self.now)
        expected = [here.lag(queue, self.now) for queue in here.queues]
        assert [{name: queue[name] for name in expected[0]} for queue in response["queues"]] == expected
        assert response["lag"] == sum(
            position["ready"] + position["leased"] + position["waiting"] for position in expected
        )
        for queue in here.queues.values():
            assert set(queue.fates) == set(range(queue.committed))

    @rule(group=st.sampled_from(GROUPS))
    def dead_letters(self, group: str) -> None:
        """Invariant 17: exactly one dead letter for each exhausted message."""
        for scope in SCOPES:
            if scope.startswith(f"{group}/"):
                self.lag(scope)

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
        scope=scopes,
        to=st.one_of(
            st.sampled_from(["earliest", "latest"]),
            st.integers(0, 900).map(lambda seconds: -seconds),
            st.tuples(st.sampled_from(list(KEYS)), st.integers(0, 100)),
        ),
        is_dry_run=st.booleans(),
    )
    def seek(self, scope: str, to: Any, is_dry_run: bool) -> None:
        group, _, client = scope.partition("/")
        target, targets = self.target(to)
        body = {"to": target, "dryRun": is_dry_run, **({"clientId": client} if client else {})}
        status, response = self.gateway.call("POST", f"/v1/groups/{group}/seek", body)

        here, _ = self.scope(scope)
        if here is None:
            assert (status, response["code"]) == (404, "client_not_found")
            return
        here.update_bounds(self.now)
        moved = {queue["queue"]: (queue["from"], queue["to"]) for queue in response["queues"]}
        assert moved == {queue: (here.queues[queue].committed, offset) for queue, offset in targets.items()}
        if not is_dry_run:
            here.seek(targets, self.now)

    def target(self, to: Any) -> tuple[Any, dict[str, int]]:
        """Return the target for the request, and the offsets that it selects."""
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

    def register_again(self, group: str) -> None:
        """The group has a new incarnation, and old receipts are invalid."""
        self.gateway.done("DELETE", f"/v1/groups/{group}")
        for scope in [name for name in self.scopes if name.startswith(f"{group}/")]:
            del self.scopes[scope]
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
            for scope in self.scopes.values():
                scope.take_expired()
        elif what == "long wait":
            self.gateway.clock.advance(3_600)
        else:
            self.register_again(what.partition(" ")[2])

    def forget_old_messages(self) -> None:
        gone = self.gateway.delete_old_messages()

        assert gone == self.topic.forget_before(self.now - RETENTION)


class QueueMachineInProduction(QueueMachine):
    store_time_error = 1_000


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
    def servers(self, rocketmq: Stack, redis: Stack, postgres: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
        # The model chooses by the current backlog. A gateway may report new messages up to 100 ms later.
        monkeypatch.setattr(receive_step, "_REPORT_INTERVAL", 0.0)
        QueueMachineInProduction.servers = rocketmq, redis, postgres
