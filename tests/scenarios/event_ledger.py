"""A client that writes down what it was told, by kind of event: what the gateway's own events must add up to."""

from collections import Counter
from typing import Any

import httpx

from event_log import events

Json = dict[str, Any]


class Ledger:
    """Counts messages by kind and group; `""` where no group is concerned."""

    def __init__(self, api: httpx.AsyncClient, topic: str = "orders") -> None:
        self.api = api
        self.topic = topic
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, count: int, group: str = "") -> None:
        if count:
            self.counts[kind, group] += count

    async def publish(self, *items: Json, **query: str) -> list[Json]:
        path = f"/v1/topics/{self.topic}/messages"
        answer = await self.api.post(path, json={"messages": list(items)}, params=query)
        results: list[Json] = answer.json()["results"]
        self.add("published", sum(result["status"] == 201 for result in results))
        self.add("scheduled", sum(result["status"] == 202 for result in results))
        self.add("refused", sum(result["status"] >= 400 for result in results))
        return results

    async def receive(self, group: str, *, acks: list[str] | None = None, is_replay: bool = False, **wish: Any) -> Json:
        answer = await self.api.post(f"/v1/groups/{group}/receive", json={"ack": acks or [], **wish})
        received: Json = answer.json()
        self._settled("acked", group, [result["outcome"] for result in received["acked"]])
        self.add("delivered", 0 if is_replay else len(received["messages"]), group)
        self.add("retention_expired", received.get("expired", 0), group)
        return received

    async def settle(self, verb: str, group: str, *messages: Json | str, count: int = 1, **more: Any) -> list[str]:
        """Ack, nack or extend; `count` is how many messages a receipt of queue mode stands for."""
        receipts = [message if isinstance(message, str) else message["receipt"] for message in messages]
        if more.get("through") is None:
            answer = await self.api.post(f"/v1/groups/{group}/{verb}", json={"receipts": receipts, **more})
            outcomes = [result["outcome"] for result in answer.json()["results"]]
        else:
            answer = await self.api.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipts[0], **more})
            outcomes = [answer.json()["outcome"]]
        self._settled({"ack": "acked", "nack": "nacked", "extend": "extended"}[verb], group, outcomes, count)
        return outcomes

    def _settled(self, kind: str, group: str, outcomes: list[str], count: int = 1) -> None:
        self.add(kind, count * sum(outcome in {"applied", "late_applied"} for outcome in outcomes), group)
        self.add("refused", sum(outcome in {"lost", "gone", "invalid"} for outcome in outcomes), group)

    async def told(self) -> Counter[tuple[str, str]]:
        """The same as the events tell it."""
        found: Counter[tuple[str, str]] = Counter()
        for row in await events(self.api):
            found[row["kind"], row["group"] or ""] += row["count"]
        return found
