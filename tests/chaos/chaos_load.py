"""Producers and consumers that run while servers fail, and record all results."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from history import Event, Group, History, Message, Publish, Receive, Sent, Settle, Settled, lease_of
from plain_http import Answer, Cut, Http

__all__ = ["Load", "LoadPlan"]

# Said of a message that is certainly not stored.
_REFUSED = frozenset({"queue_unavailable"})
_PAUSE = 0.05
_WAIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Size of the load. `ahead` is the maximum number of messages that the slowest group may lag behind."""

    topic: str = "chaos"
    keys: int = 400
    producers: int = 6
    consumers: int = 4
    batch: int = 200
    ahead: int = 10_000
    rate: float = 1_000.0


@dataclass
class Counts:
    stored: int = 0
    acked: Counter[str] = field(default_factory=Counter)
    hung_up: int = 0


class Load:
    def __init__(self, http: Http, history: History, plan: LoadPlan, groups: list[Group], seed: int) -> None:
        self._http = http
        self._history = history
        self._plan = plan
        self._groups = groups
        self._seed = seed
        self.counts = Counts()
        self.is_publishing = True
        self.is_over = False

    def producers(self) -> list[Any]:
        """Return one coroutine per producer. They end when publishing is over."""
        return [self._produce(f"p{number}") for number in range(self._plan.producers)]

    def consumers(self) -> list[Any]:
        """Return one coroutine per consumer. They end when the run is over."""
        return [
            self._consume(group, random.Random(f"{self._seed} {group.name} {number}"))
            for group in self._groups
            for number in range(self._plan.consumers)
        ]

    def _note(self, event: Event) -> None:
        self._history.add(event)

    async def _produce(self, name: str) -> None:
        """Publish batches of random size. Most have idempotency keys and are repeated until stored."""
        rng = random.Random(f"{self._seed} {name}")
        number = 0
        due = time.monotonic()
        while self.is_publishing:
            envelopes = []
            is_once = rng.random() < 0.9
            for _ in range(rng.randint(1, self._plan.batch)):
                number += 1
                envelope = {"body": f"{name}-{number}"}
                if rng.random() < 0.7:
                    envelope["key"] = f"k{rng.randrange(self._plan.keys)}"
                if is_once:
                    envelope["idempotencyKey"] = envelope["body"]
                envelopes.append(envelope)
            due = max(due, time.monotonic() - 1) + len(envelopes) * self._plan.producers / self._plan.rate
            while envelopes and self.is_publishing:
                left = await self._publish(envelopes)
                envelopes = left if is_once else []
                if envelopes:
                    await asyncio.sleep(_PAUSE)
            await asyncio.sleep(max(due - time.monotonic(), 0))
            while self.is_publishing and self._is_far_ahead():  # noqa: ASYNC110 - many things change it
                await asyncio.sleep(_PAUSE)

    def _is_far_ahead(self) -> bool:
        slowest = min(self.counts.acked[group.name] for group in self._groups)
        return self.counts.stored - slowest > self._plan.ahead

    async def _publish(self, envelopes: list[dict[str, str]]) -> list[dict[str, str]]:
        """Return the messages that are not known to be stored."""
        began = time.time()
        try:
            response = await self._http.call("POST", f"/v1/topics/{self._plan.topic}/messages", {"messages": envelopes})
            error = "" if response.status in {200, 207} else response.code
        except Cut as cut:
            response, error = None, f"cut: {cut}"
        if response is None or error:
            outcome = "refused" if error in _REFUSED else "unknown"
            sent = [Sent(envelope["body"], envelope.get("key"), outcome) for envelope in envelopes]
        else:
            sent = [
                _sent(envelope, result) for envelope, result in zip(envelopes, response.body["results"], strict=True)
            ]
        self._note(Publish(began, time.time(), sent, error))
        self.counts.stored += sum(result.outcome == "stored" for result in sent)
        return [envelope for envelope, result in zip(envelopes, sent, strict=True) if result.outcome != "stored"]

    async def _consume(self, group: Group, rng: random.Random) -> None:
        carried: list[str] = []
        while not self.is_over:
            wish = {"max": rng.randint(1, self._plan.batch), "wait": _WAIT}
            if self.is_publishing and rng.random() < 0.01:
                await self._http.hang_up(f"/v1/groups/{group.name}/receive", wish, after=300, patience=rng.random())
                self.counts.hung_up += 1
                continue
            receipts = await self._receive(group, wish, carried)
            carried = []
            chance = rng.random() if self.is_publishing else 0.5
            if not receipts or chance < 0.005:
                # Forgotten: only the end of the lease helps.
                continue
            if chance < 0.015:
                await self._settle(group, "nack", receipts, delay=0)
                continue
            if chance > 0.98:
                # Twice, as who is not sure; the second must be a duplicate.
                await self._settle(group, "ack", receipts)
            if group.mode == "queue" and chance > 0.1:
                carried = receipts
            else:
                await self._ack(group, receipts)
        if carried:
            await self._ack(group, carried)

    async def _receive(self, group: Group, wish: dict[str, Any], carried: list[str]) -> list[str]:
        """Return the receipts of the received messages. Carried acks are repeated until a response arrives."""
        began = time.time()
        try:
            path = f"/v1/groups/{group.name}/receive"
            response = await self._http.call("POST", path, wish | ({"ack": carried} if carried else {}))
            error = "" if response.status == 200 else response.code
        except Cut as cut:
            response, error = None, f"cut: {cut}"
        ended = time.time()
        if response is None or error:
            self._note(Receive(group.name, began, ended, error=error))
            self._note_settled(group, "ack", began, carried, ["unknown"] * len(carried), error)
            await asyncio.sleep(_PAUSE)
            if carried:
                await self._ack(group, carried)
            return []
        self._note_settled(group, "ack", began, carried, [result["outcome"] for result in response.body["acked"]])
        return self._note_received(group, began, ended, response)

    def _note_received(self, group: Group, began: float, ended: float, response: Answer) -> list[str]:
        found, lease = response.body["messages"], response.body.get("lease")
        receipts = [lease["receipt"]] if lease else [message["receipt"] for message in found]
        leases = [lease_of(receipt) for receipt in receipts]
        until = _seconds((lease or found[0])["leasedUntil"]) if found else 0.0
        epochs = [lease.epoch for lease in leases] * (len(found) if lease else 1)
        messages = [
            Message(message["queue"], message["offset"], message["id"], message["body"], message["key"], epoch)
            for message, epoch in zip(found, epochs, strict=True)
        ]
        incarnation = leases[0].incarnation if leases else ""
        rewound = response.body.get("rewound", 0)
        self._note(Receive(group.name, began, ended, messages, until, incarnation, rewound))
        return receipts

    async def _ack(self, group: Group, receipts: list[str]) -> None:
        """Repeat the request until there is a response."""
        while not await self._settle(group, "ack", receipts):  # noqa: ASYNC110 - each is a request
            await asyncio.sleep(_PAUSE)

    async def _settle(self, group: Group, verb: str, receipts: list[str], **more: Any) -> bool:
        began = time.time()
        error = ""
        try:
            response = await self._http.call("POST", f"/v1/groups/{group.name}/{verb}", {"receipts": receipts, **more})
            error = "" if response.status in {200, 207} else response.code
        except Cut as cut:
            error = f"cut: {cut}"
        outcomes = ["unknown"] * len(receipts)
        if not error:
            outcomes = [result["outcome"] for result in response.body["results"]]
        self._note_settled(group, verb, began, receipts, outcomes, error)
        return not error

    def _note_settled(
        self, group: Group, verb: str, began: float, receipts: list[str], outcomes: list[str], error: str = ""
    ) -> None:
        if not receipts:
            return
        settled = [Settled(*lease_of(receipt), outcome) for receipt, outcome in zip(receipts, outcomes, strict=True)]
        self._note(Settle(group.name, verb, began, time.time(), settled, error))
        if verb == "ack":
            self.counts.acked[group.name] += sum(
                result.next - result.start for result in settled if result.outcome in {"applied", "late_applied"}
            )


def _sent(envelope: dict[str, str], result: dict[str, Any]) -> Sent:
    body, key = envelope["body"], envelope.get("key")
    if "error" not in result:
        return Sent(body, key, "stored", result["id"], result["queue"], result["offset"])
    return Sent(body, key, "refused" if result["error"]["code"] in _REFUSED else "unknown")


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()
