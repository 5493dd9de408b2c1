"""Message mode against the reference model: Hypothesis plays consumers, publishers, operators and time.

Three groups read one topic: a plain one, an ordered one and a filtered one. Every response is compared with the model
(message_model.py), which determines what may be granted and the outcome of every settlement. The gateway is real, on a
clock that the test moves. The timer dispatcher runs when the test calls it.
"""

import json
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from gateway_driver import GatewayDriver, Servers
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from message_model import Attempt, GroupModel, Message, Shape

from mqgate.consumption import receive as receive_step
from mqgate.core.message import milliseconds
from mqgate.core.times import parse_instant
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.stack import Stack
from random_examples import examples

QUEUES = 2
WINDOW = 600_000
GROUPS = ["plain", "ordered", "filtered"]
Answer = dict[str, Any]

# Two of the groups in every run, and mostly the first: what happens to a group must happen often.
groups = st.sampled_from([0, 0, 0, 1])
keys = st.sampled_from([None, "a", "b", "c"])
tags = st.sampled_from([None, "red", "blue"])
sizes = st.sampled_from([1, 1, 2, 3, 8])
visibilities = st.sampled_from([None, 1_000, 15_000])
attempts = st.sampled_from([None, None, None, "a1", "a2"])
# Mostly the newest receipts, sometimes old ones.
receipts = st.one_of(st.integers(0, 3), st.integers(0, 60))
verbs = st.sampled_from(["ack", "ack", "nack", "extend"])


class MessageDriver(GatewayDriver):
    """A gateway driver with a manual timer dispatcher and a client that disconnects."""

    def _open(self) -> None:
        # Stopped before the gateway is up, because its loop would dispatch overdue timers.
        with patch.object(TimerDispatcher, "start"):
            super()._open()

    def dispatch(self) -> int:
        """Dispatch the due timers, as the loop of the dispatcher does."""

        async def dispatch() -> int:
            return await self.gateway.dispatcher.recover() + await self.gateway.dispatcher.run_once()

        return self._loop.run_until_complete(dispatch())

    def receive_and_disconnect(self, group: str, body: object) -> None:
        self._loop.run_until_complete(self._receive_and_disconnect(group, json.dumps(body).encode()))

    async def _receive_and_disconnect(self, group: str, raw: bytes) -> None:
        events: list[Any] = [{"type": "http.disconnect"}, {"type": "http.request", "body": raw, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            return events.pop() if len(events) > 1 else events[0]

        async def send(event: Any) -> None:
            sent.append(event)

        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/v1/groups/{group}/receive",
            "query_string": b"",
            "headers": [(b"content-length", str(len(raw)).encode())],
            "client": ("127.0.0.1", 5000),
        }
        await self.gateway.app(scope, receive, send)
        # No message, or no client: in both cases no response contains messages.
        assert not sent or json.loads(sent[1]["body"])["messages"] == []


class MessageMachine(RuleBasedStateMachine):
    servers: ClassVar[Servers | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.gateway = MessageDriver(self.servers)
        self.ends = {f"local:{number}": 0 for number in range(QUEUES)}
        self.queue_of: dict[str, str] = {}
        self.groups: dict[str, GroupModel] = {}
        self.scheduled: dict[str, tuple[int, Message]] = {}
        self.decided: dict[str, str] = {}
        self.idempotent: dict[str, tuple[int, str, Answer]] = {}
        self.published = 0
        self.names: list[str] = []

    @property
    def now(self) -> int:
        return self.gateway.clock()

    @initialize(names=st.permutations(GROUPS))
    def register(self, names: list[str]) -> None:
        self.names = names[:2]
        self.gateway.done("PUT", "/v1/topics/t", {"queues": QUEUES})
        shared = {"topic": "t", "visibility": "10s", "maxAttempts": 3, "backoff": ["1s", "5s"], "maxInFlight": 5}
        own: dict[str, Answer] = {"plain": {}, "ordered": {"ordered": True}, "filtered": {"filter": {"tags": ["red"]}}}
        for name in self.names:
            self.gateway.done("PUT", f"/v1/groups/{name}", {**shared, **own[name]})
            self.groups[name] = GroupModel(
                name,
                10_000,
                3,
                (1_000, 5_000),
                5,
                tags=frozenset(["red"] if name == "filtered" else []),
                is_ordered=name == "ordered",
            )

    def teardown(self) -> None:
        try:
            for turn in range(len(self.groups)):
                self.check_lag_and_dead_letters(turn)
        finally:
            self.gateway.close()

    def chosen(self, turn: int) -> tuple[str, GroupModel]:
        return self.names[turn], self.groups[self.names[turn]]

    # Publishing, now and later.

    def stored(self, queue: str, offset: int, message: Message) -> None:
        """Invariant 3: offsets are dense and in order of acceptance, and a key has one queue."""
        assert offset == self.ends[queue]
        self.ends[queue] += 1
        if message.key is not None:
            assert self.queue_of.setdefault(message.key, queue) == queue
        for group in self.groups.values():
            group.append(queue, message)

    @rule(key=keys, tag=tags, count=st.sampled_from([1, 1, 3]))
    def publish(self, key: str | None, tag: str | None, count: int) -> None:
        bodies = [str(self.published + number) for number in range(count)]
        self.published += count
        items = [{"body": body, "key": key, "tag": tag} for body in bodies]
        response = self.gateway.done("POST", "/v1/topics/t/messages", {"messages": items})
        for body, result in zip(bodies, response["results"], strict=True):
            assert result["status"] == 201
            self.stored(result["queue"], result["offset"], Message(result["id"], body, key, tag))

    @rule(name=st.sampled_from(["i1", "i2"]), body=st.sampled_from(["A", "A", "B"]), tag=tags)
    def publish_idempotently(self, name: str, body: str, tag: str | None) -> None:
        """The same key and body is the same message, another body is 422. After the window the id is the same."""
        envelope = {"body": body, "tag": tag, "idempotencyKey": name}
        status, response = self.gateway.call("POST", "/v1/topics/t/messages", envelope)
        at, known, first = self.idempotent.get(name, (-WINDOW, "", {}))
        if self.now - at < WINDOW:
            if known == body:
                assert (status, response) == (200, {**first, "duplicate": True})
            else:
                assert (status, response["code"]) == (422, "idempotency_mismatch")
            return
        assert status == 201, response
        assert known != body or response["id"] == first["id"]
        self.idempotent[name] = (self.now, body, response)
        self.stored(response["queue"], response["offset"], Message(response["id"], body, None, tag))

    @rule(key=keys, tag=tags, delay=st.sampled_from([0.5, 3, 20, 400]))
    def publish_later(self, key: str | None, tag: str | None, delay: float) -> None:
        body = str(self.published)
        self.published += 1
        envelope = {"body": body, "key": key, "tag": tag, "delay": delay}
        status, response = self.gateway.call("POST", "/v1/topics/t/messages", envelope)
        due = self.now + round(delay * 1000)
        assert (status, milliseconds(parse_instant(response["deliverAt"], ""))) == (202, due)
        self.scheduled[response["id"]] = (due, Message(response["id"], body, key, tag))

    @rule()
    def dispatch(self) -> None:
        """Invariant 21: what is due and nothing else, once, the earliest first."""
        due = sorted((at, message.id) for message_id, (at, message) in self.scheduled.items() if at <= self.now)
        assert self.gateway.dispatch() == len(due)
        left = {message_id for _, message_id in due}
        for queue in self.ends:
            query = f"offset={self.ends[queue]}&max=1000"
            found = self.gateway.done("GET", f"/v1/topics/t/queues/{queue}/messages", query=query)
            for item in found.get("items", found.get("messages", [])):
                _, message = self.scheduled.pop(item["id"])
                assert (item["body"], item["key"], item["tag"]) == (message.body, message.key, message.tag)
                left.remove(item["id"])
                self.decided[item["id"]] = "delivered"
                self.stored(queue, item["offset"], message)
        assert not left

    @precondition(lambda self: self.scheduled or self.decided)
    @rule(data=st.data(), delay=st.sampled_from([None, None, 0, 2, 60]))
    def change_timer(self, data: st.DataObject, delay: float | None) -> None:
        """Cancel or reschedule a timer. If it is no longer scheduled, the response reports its state."""
        message_id = data.draw(st.sampled_from([*self.scheduled, *self.decided]))
        path = f"/v1/scheduled/{message_id}"
        if delay is None:
            status, response = self.gateway.call("DELETE", path)
        else:
            status, response = self.gateway.call("PATCH", path, {"delay": delay})
        if message_id in self.scheduled:
            assert status == 200, response
            if delay is None:
                del self.scheduled[message_id]
                self.decided[message_id] = "cancelled"
            else:
                _, message = self.scheduled[message_id]
                self.scheduled[message_id] = (self.now + round(delay * 1000), message)
        elif self.decided[message_id] == "delivered":
            assert (status, response["code"]) == (409, "already_delivered")
        elif delay is None:
            assert (status, response["outcome"]) == (200, "cancelled")
        else:
            assert (status, response["code"]) == (409, "already_cancelled")

    # Consuming.

    @rule(turn=groups, most=sizes, visibility=visibilities, attempt=attempts, carried=st.lists(receipts, max_size=2))
    def receive(self, turn: int, most: int, visibility: int | None, attempt: str | None, carried: list[int]) -> None:
        name, group = self.chosen(turn)
        acks = [group.leases[-1 - number] for number in carried if number < len(group.leases)]
        wish: Answer = {"max": most, "ack": [lease.receipt for lease in acks]}
        if visibility is not None:
            wish["visibility"] = visibility / 1000
        if attempt is not None:
            wish["attemptId"] = attempt
        status, response = self.gateway.call("POST", f"/v1/groups/{name}/receive", wish)
        if status == 409:
            self.mismatched(group, response, attempt, (most, visibility))
            return
        assert status == 200, response
        # Carried acks go first, then leases that ended are seen.
        answered = [result["outcome"] for result in response["acked"]]
        assert answered == [
            group.settle(lease, "ack", self.now, outcome) for lease, outcome in zip(acks, answered, strict=True)
        ]
        group.expire_leases(self.now)
        again = group.repeated(attempt, (most, visibility), self.now)
        assert again != "mismatch"
        if isinstance(again, Attempt):
            assert sorted(message["receipt"] for message in response["messages"]) == sorted(
                lease.receipt for lease in again.leases
            )
            return
        self.granted(group, response, most, visibility, attempt)

    @rule(turn=groups, most=sizes)
    def receive_without_attempt(self, turn: int, most: int) -> None:
        """Repeat the rule, so that it is chosen more often."""
        self.receive(turn, most, None, None, [])

    @rule(turn=groups, verb=verbs, number=receipts)
    def settle_again(self, turn: int, verb: str, number: int) -> None:
        """Repeat the rule, so that it is chosen more often."""
        self.settle(turn, verb, [number], None, None)

    def mismatched(self, group: GroupModel, response: Answer, attempt: str | None, shape: Shape) -> None:
        """A refused request changes nothing: no carried ack was applied, no expiry was noticed."""
        assert response["code"] == "attempt_mismatch"
        assert attempt is not None
        assert group.attempts[attempt].shape != shape

    def granted(
        self, group: GroupModel, response: Answer, most: int, visibility: int | None, attempt: str | None
    ) -> None:
        messages, held = response["messages"], visibility or group.visibility
        possible = 0 if group.is_paused else len(group.grantable(self.now))
        room = group.room(most)
        if group.is_ordered or group.tags:
            # How many at once is no promise here; but some, if there are some.
            assert bool(messages) == bool(min(possible, room)), response
            assert len(messages) <= min(possible, room)
        else:
            assert len(messages) == min(possible, room)
        if not messages:
            assert response["state"] == group.why_empty(self.now)
        leases = group.grant(messages, held, self.now)
        for message in messages:
            assert milliseconds(parse_instant(message["leasedUntil"], "")) == self.now + held
        if attempt is not None and leases:
            group.attempts[attempt] = Attempt((most, visibility), leases)

    @rule(turn=groups, most=sizes)
    def receive_and_disconnect(self, turn: int, most: int) -> None:
        """Invariant 20: released messages are unchanged. Only expired leases are noticed."""
        name, group = self.chosen(turn)
        self.gateway.receive_and_disconnect(name, {"max": most})
        group.released(self.now)

    @rule(
        turn=groups,
        verb=verbs,
        numbers=st.lists(receipts, min_size=1, max_size=3),
        delay=st.sampled_from([None, 0, 2_000]),
        visibility=st.sampled_from([None, 1_000, 30_000, 12 * 3_600_000]),
    )
    def settle(self, turn: int, verb: str, numbers: list[int], delay: int | None, visibility: int | None) -> None:
        name, group = self.chosen(turn)
        leases = [group.leases[-1 - number] for number in numbers if number < len(group.leases)]
        if not leases:
            return
        body: Answer = {"receipts": [lease.receipt for lease in leases]}
        if verb == "nack":
            body |= {"reason": "no"} if delay is None else {"reason": "no", "delay": delay / 1000}
        elif verb == "extend" and visibility is not None:
            body["visibility"] = visibility / 1000
        status, response = self.gateway.call("POST", f"/v1/groups/{name}/{verb}", body)

        held = visibility or group.visibility
        answered = [result["outcome"] for result in response["results"]]
        expected = [
            group.settle(lease, verb, self.now, outcome, visibility=held, delay=delay)
            for lease, outcome in zip(leases, answered, strict=True)
        ]
        assert answered == expected
        assert status == (200 if {*expected} <= {"applied", "duplicate", "late_applied"} else 207)

    @rule(turn=groups)
    def forge(self, turn: int) -> None:
        """A forged or foreign receipt is invalid."""
        name, other = self.names[turn], self.names[1 - turn]
        foreign = [lease.receipt for lease in self.groups[other].leases[-1:]]
        body = {"receipts": ["forged", *foreign]}
        _, response = self.gateway.call("POST", f"/v1/groups/{name}/ack", body)
        assert {result["outcome"] for result in response["results"]} == {"invalid"}

    # Operating.

    @rule(turn=groups)
    def check_lag_and_dead_letters(self, turn: int) -> None:
        """Conservation: lag and dead letters equal the unsettled and exhausted messages of the model."""
        name, group = self.chosen(turn)
        lag = self.gateway.done("GET", f"/v1/groups/{name}/lag")
        group.expire_leases(self.now)
        group.check_lag(lag, self.now)
        assert {position: letter[0] for position, letter in self.letters(name).items()} == {
            position: letter[0] for position, letter in group.letters.items()
        }

    def letters(self, name: str) -> dict[tuple[str, int], tuple[str, int, str]]:
        """Return the dead letters of the gateway, oldest first. Each must be in the model."""
        response = self.gateway.done("GET", f"/v1/groups/{name}/dead-letters", query="limit=1000")
        group = self.groups[name]
        group.expire_leases(self.now)
        found = {}
        for item in response["items"]:
            position = item["origin"]["queue"], item["origin"]["offset"]
            assert position not in found
            found[position] = (item["id"], item["deliveries"], item["reason"])
        assert found == group.letters
        return found

    @rule(turn=groups, is_dry_run=st.booleans(), fate=st.sampled_from(["redrive", "redrive", "purge"]))
    def purge_or_redrive(self, turn: int, is_dry_run: bool, fate: str) -> None:
        name, group = self.chosen(turn)
        letters = self.letters(name)
        body = {"all": True, "dryRun": is_dry_run}
        response = self.gateway.done("POST", f"/v1/groups/{name}/dead-letters/{fate}", body)
        assert [result["id"] for result in response["results"]] == [letter[0] for letter in letters.values()]
        if is_dry_run:
            return
        if fate == "redrive":
            group.redriven(list(letters))
        else:
            group.letters.clear()

    @rule(turn=groups, is_paused=st.sampled_from([True, False, False]))
    def pause(self, turn: int, is_paused: bool) -> None:
        name, group = self.chosen(turn)
        self.gateway.done("POST", f"/v1/groups/{name}/{'pause' if is_paused else 'resume'}")
        group.is_paused = is_paused

    @rule(turn=groups, data=st.data(), to=st.sampled_from(["earliest", "latest", "offsets"]))
    def seek(self, turn: int, data: st.DataObject, to: str) -> None:
        name, group = self.chosen(turn)
        ends = {queue: len(group.queues.get(queue, ())) for queue in {**self.ends, **group.queues}}
        if to == "offsets":
            queue = data.draw(st.sampled_from(sorted(ends)))
            targets = {queue: data.draw(st.integers(0, ends[queue]))}
        else:
            targets = {queue: 0 if to == "earliest" else end for queue, end in ends.items()}
        body = {"to": targets if to == "offsets" else to}
        response = self.gateway.done("POST", f"/v1/groups/{name}/seek", body)

        assert {queue["queue"]: queue["to"] for queue in response["queues"]} == targets
        for queue, target in targets.items():
            group.seek(queue, target)

    # Time, and the process.

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 2, 5, 10, 30, 601]))
    def wait(self, seconds: float) -> None:
        self.gateway.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.gateway.restart()


class MessageMachineInProduction(MessageMachine):
    pass


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestMessageMode(MessageMachine.TestCase):
    settings = examples(40, steps=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.rocketmq
class TestMessageModeInProduction(MessageMachineInProduction.TestCase):
    # A broker takes its time for topics that come and go with every example.
    settings = examples(10, steps=60)

    @pytest.fixture(autouse=True)
    def servers(self, rocketmq: Stack, redis: Stack, postgres: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
        # The model chooses by the current backlog. A gateway may report new messages up to 100 ms later.
        monkeypatch.setattr(receive_step, "_REPORT_INTERVAL", 0.0)
        MessageMachineInProduction.servers = rocketmq, redis, postgres
