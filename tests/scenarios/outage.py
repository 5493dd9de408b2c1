"""Unavailable brokers: the message log of a gateway, some of whose queues fail like those of an unreachable broker."""

from collections.abc import Sequence
from typing import Any

from mqgate import bootstrap
from mqgate.core.errors import MqgateError, OutcomeUnknown, QueueUnavailable
from mqgate.core.message import Draft, Message, Stored, slot_of
from mqgate.ports.message_log import TopicBounds

TOPIC = "orders"


def key_for(queue: int, queues: int = 2) -> str:
    """Return a message key that selects this queue."""
    return next(key for key in map(str, range(1_000)) if slot_of(key) % queues == queue)


class Outage:
    """What fails is named by topic and queue (`orders/local:0`), for an append also by message id.

    `closed`: cannot be read, and the log reports it. `unreadable`: cannot be read, and this is not known yet.
    `refusing`: stores nothing. `silent`: does not respond, and stores the message only if `is_stored`.
    """

    def __init__(self, gateway: bootstrap.Gateway) -> None:
        self._log: Any = gateway.dispatcher._log
        self._append, self._read, self._heads = self._log.append, self._log.read, self._log.bounds
        self._find = self._log.find
        self._log.append, self._log.read, self._log.bounds = self.append, self.read, self.bounds
        self._log.find = self.find
        self.closed: set[str] = set()
        self.unreadable: set[str] = set()
        self.refusing: set[str] = set()
        self.silent: set[str] = set()
        self.is_stored = False
        self.cannot_look = False
        self.failed_reads = 0
        self.producers: list[str] = []
        self.groups: list[str] = []

    def end(self) -> None:
        """Make all brokers available. Receives that are parked for their queues are notified."""
        opened = [place.split("/") for place in self.closed]
        for broken in (self.closed, self.unreadable, self.refusing, self.silent):
            broken.clear()
        self.cannot_look = False
        for topic, queue in opened:
            for arrived in self._log._watchers.get(topic, ()):
                arrived(queue, 1)

    async def bounds(self, topic: str, since: int = 0) -> TopicBounds:
        found = await self._heads(topic, since)
        names = (place.split("/") for place in self.closed)
        return TopicBounds(found.version, found.queues, frozenset(queue for name, queue in names if name == topic))

    async def read(
        self, topic: str, queue: str, offset: int, max_count: int, max_bytes: int, group: str = ""
    ) -> Sequence[Message]:
        self.groups.append(group)
        if f"{topic}/{queue}" in self.closed | self.unreadable:
            self.failed_reads += 1
            raise QueueUnavailable(f"{queue} is down")
        return list(await self._read(topic, queue, offset, max_count, max_bytes, group))

    async def append(self, topic: str, drafts: Sequence[Draft], producer: str = "") -> list[Stored | MqgateError]:
        self.producers.append(producer)
        count = len((await self._heads(topic)).queues)
        outcomes: dict[int, Stored | MqgateError] = {}
        sent: dict[int, Draft] = {}
        for index, draft in enumerate(drafts):
            slot = self._slot(topic, count) if draft.slot is None else draft.slot
            names = {f"{topic}/local:{slot % count}", draft.id}
            if names & self.refusing:
                outcomes[index] = QueueUnavailable("its queue is down")
                continue
            if names & self.silent:
                outcomes[index] = OutcomeUnknown("no broker answered")
                if not self.is_stored:
                    continue
            sent[index] = draft._replace(slot=slot)
        stored = await self._append(topic, list(sent.values()), producer) if sent else ()
        outcomes = dict(zip(sent, stored, strict=True)) | outcomes
        return [outcomes[index] for index in range(len(drafts))]

    async def find(self, topic: str, message_id: str) -> Message | None:
        if self.cannot_look:
            raise QueueUnavailable("a broker that may have it is down")
        found: Message | None = await self._find(topic, message_id)
        return found

    def _slot(self, topic: str, count: int) -> int:
        """Return a slot of an available queue for a message without a key."""
        down = self.refusing | self.silent
        return next((slot for slot in range(count) if f"{topic}/local:{slot}" not in down), 0)
