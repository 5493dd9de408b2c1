"""A client that records the responses it received, by kind of event: the events of the gateway must add up to them."""

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
        response = await self.api.post(path, json={"messages": list(items)}, params=query)
        results: list[Json] = response.json()["results"]
        self.add("published", sum(result["status"] == 201 for result in results))
        self.add("scheduled", sum(result["status"] == 202 for result in results))
        self.add("refused", sum(result["status"] >= 400 for result in results))
        return results

    async def receive(self, group: str, *, acks: list[str] | None = None, is_replay: bool = False, **wish: Any) -> Json:
        response = await self.api.post(f"/v1/groups/{group}/receive", json={"ack": acks or [], **wish})
        received: Json = response.json()
        self._settled("acked", group, [result["outcome"] for result in received["acked"]])
        self.add("delivered", 0 if is_replay else len(received["messages"]), group)
        self.add("retention_expired", received.get("expired", 0), group)
        return received

    async def settle(self, verb: str, group: str, *messages: Json | str, count: int = 1, **more: Any) -> list[str]:
        """Ack, nack or extend. `count` is the number of messages that a receipt of queue mode covers."""
        receipts = [message if isinstance(message, str) else message["receipt"] for message in messages]
        if more.get("through") is None:
            response = await self.api.post(f"/v1/groups/{group}/{verb}", json={"receipts": receipts, **more})
            outcomes = [result["outcome"] for result in response.json()["results"]]
        else:
            response = await self.api.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipts[0], **more})
            outcomes = [response.json()["outcome"]]
        self._settled({"ack": "acked", "nack": "nacked", "extend": "extended"}[verb], group, outcomes, count)
        return outcomes

    def _settled(self, kind: str, group: str, outcomes: list[str], count: int = 1) -> None:
        self.add(kind, count * sum(outcome in {"applied", "late_applied"} for outcome in outcomes), group)
        self.add("refused", sum(outcome in {"lost", "gone", "invalid"} for outcome in outcomes), group)

    async def recorded_events(self) -> Counter[tuple[str, str]]:
        """Return the same counts from the events."""
        found: Counter[tuple[str, str]] = Counter()
        for row in await events(self.api):
            found[row["kind"], row["group"] or ""] += row["count"]
        return found
