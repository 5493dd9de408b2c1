"""The client of the gateway API for asyncio. `client.py` is its blocking form."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, cast
from uuid import uuid4

from mqgate.client import messages
from mqgate.client.alarms import AsyncAlarms
from mqgate.client.caller import Caller
from mqgate.client.errors import Reply
from mqgate.client.operations import AsyncDeadLetters, AsyncEntries, AsyncGroups, AsyncKeys, AsyncScheduled
from mqgate.client.requests import Call, Duration, Instant, Json, get, given, post, seconds
from mqgate.client.tracing import trace_properties
from mqgate.client.transport import AsyncTransport, Transport
from mqgate.client.types import Lag, Outcome, Page, Published, PublishResult, QueueBounds, Received

__all__ = ["AsyncClient"]


class AsyncClient:
    """Client of one gateway, or of several that serve the same messages; tasks may share it.

    Calls return the JSON of the API. They raise GatewayError if the gateway refuses the request, and
    GatewayUnreachable if none responds. A call is repeated for up to `retry_for` if that is safe, see `caller.py`;
    0 turns retries off. `timeout` limits connecting and each response; the wait of a long poll is added to it.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        timeout: float | timedelta = 30.0,
        retry_for: float | timedelta = 30.0,
        transport: Callable[[list[str]], Transport] = AsyncTransport,
    ) -> None:
        self.caller = Caller(url, key, timeout=timeout, retry_for=retry_for, transport=transport)
        self.topics = AsyncEntries(self.caller, "topics")
        self.producers = AsyncEntries(self.caller, "producers")
        self.groups = AsyncGroups(self.caller, "groups")
        self.keys = AsyncKeys(self.caller)
        self.accounts = AsyncEntries(self.caller, "accounts")
        self.teams = AsyncEntries(self.caller, "teams")
        self.scheduled = AsyncScheduled(self.caller)
        self.dead_letters = AsyncDeadLetters(self.caller)
        self.alarms = AsyncAlarms(self.caller)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The gateway that the next call is sent to."""
        return self.caller.address

    async def close(self) -> None:
        await self.caller.close()

    async def send(self, call: Call) -> Reply:
        """Send any call once, and return any response. Raise GatewayUnreachable if there is none."""
        return await self.caller.send(call)

    async def call(self, call: Call) -> Json:
        """Send a call that has no method of its own, and return the JSON of the response."""
        return await self.caller.call(call)

    async def publish(
        self,
        topic: str,
        body: Any,
        *,
        producer: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        idempotency_key: str | None = None,
    ) -> Published:
        """Store or schedule one message. Bytes are stored unchanged, text as UTF-8, other values as compact JSON."""
        metadata = {
            "key": key,
            "tag": tag,
            "properties": {**trace_properties(), **(properties or {})},
            "delay": delay,
            "deliver_at": deliver_at,
            "idempotency_key": idempotency_key,
        }
        return await messages.publish(self.caller, topic, body, producer, metadata)

    async def publish_batch(
        self, topic: str, envelopes: Sequence[Mapping[str, Any]], *, producer: str | None = None
    ) -> list[PublishResult]:
        """Store 1 to 1,000 messages. Return one result per message, in order, with `error` if it was refused."""
        return await messages.publish_batch(self.caller, topic, envelopes, producer)

    async def publish_raw(
        self,
        topic: str,
        body: bytes,
        *,
        content_type: str = "application/octet-stream",
        producer: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        idempotency_key: str | None = None,
    ) -> Published:
        """Store the body unchanged and send the metadata in headers, which makes property names lower-case."""
        metadata = messages.raw_metadata(key, tag, properties, delay, deliver_at, idempotency_key)
        return await messages.publish_raw(self.caller, topic, body, content_type, producer, metadata)

    async def receive(
        self,
        group: str,
        *,
        max: int | None = None,  # noqa: A002 - the name in the API
        wait: float | timedelta = 0.0,
        visibility: Duration | None = None,
        client_id: str | None = None,
        attempt_id: str | None = None,
        ack: Sequence[str] = (),
    ) -> Received:
        """Lease messages, and wait up to 60 s for the first. `ack` acknowledges earlier receipts before that.

        Their outcomes are in `acked`. After a lost response, the same `attempt_id` returns the same leases; without
        one, the client makes one for its own retries.
        """
        if attempt_id is None and self.caller.has_retries:
            attempt_id = uuid4().hex
        body = given(
            max=max,
            wait=seconds(wait) or None,
            visibility=visibility,
            clientId=client_id,
            attemptId=attempt_id,
            ack=list(ack) or None,
        )
        is_repeatable = attempt_id is not None
        call = post(body, "groups", group, "receive", wait=seconds(wait), is_repeatable=is_repeatable)
        return cast("Received", await self.caller.call(call))

    async def ack(self, group: str, receipt: str, *, through: int | None = None) -> Outcome:
        """Confirm that the leased work is complete, up to the offset `through` of a queue batch if it is given."""
        return await self._settle(group, "ack", receipt=receipt, through=through)

    async def ack_all(self, group: str, receipts: Sequence[str]) -> list[Outcome]:
        """Acknowledge 1 to 1,000 receipts. Return one outcome per receipt, also for refused ones."""
        return await self._settle_all(group, "ack", receipts=list(receipts))

    async def nack(
        self, group: str, receipt: str, *, delay: Duration | None = None, reason: str | None = None
    ) -> Outcome:
        """Release a lease whose work failed. Without `delay`, the backoff of the group applies."""
        return await self._settle(group, "nack", receipt=receipt, delay=delay, reason=reason)

    async def nack_all(
        self, group: str, receipts: Sequence[str], *, delay: Duration | None = None, reason: str | None = None
    ) -> list[Outcome]:
        """Release 1 to 1,000 leases. Return one outcome per receipt, also for refused ones."""
        return await self._settle_all(group, "nack", receipts=list(receipts), delay=delay, reason=reason)

    async def extend(self, group: str, receipt: str, visibility: Duration | None = None) -> Outcome:
        """Extend a lease by `visibility` from now."""
        return await self._settle(group, "extend", receipt=receipt, visibility=visibility)

    async def extend_all(
        self, group: str, receipts: Sequence[str], visibility: Duration | None = None
    ) -> list[Outcome]:
        """Extend 1 to 1,000 leases. Return one outcome per receipt, also for refused ones."""
        return await self._settle_all(group, "extend", receipts=list(receipts), visibility=visibility)

    async def lag(self, group: str, *, client_id: str | None = None) -> Lag:
        return cast("Lag", await self.caller.call(get("groups", group, "lag", clientId=client_id)))

    async def clients(self, group: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Json]:
        """Return one page of the clients that polled a group."""
        return cast("Page[Json]", await self.caller.call(get("groups", group, "clients", limit=limit, cursor=cursor)))

    async def seek(
        self,
        group: str,
        to: Instant | Mapping[str, int],
        *,
        client_id: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """Seek a group to "earliest", "latest", an instant or offsets by queue. Older receipts become invalid."""
        return await self._act(group, "seek", to=to, clientId=client_id, dryRun=dry_run or None, reason=reason)

    async def pause(self, group: str, *, reason: str | None = None) -> Json:
        return await self._act(group, "pause", reason=reason)

    async def resume(self, group: str, *, reason: str | None = None) -> Json:
        return await self._act(group, "resume", reason=reason)

    async def queues(self, topic: str, *, at: Instant | None = None, times: bool = True) -> list[QueueBounds]:
        """Return the bounds of all queues; with `at` also `offsetAt`, the first offset stored at or after it.

        The call is faster without `times`. A queue that is not `open` cannot be read now; its bounds are the last known
        ones.
        """
        query = {"at": at, "times": None if times else "false", "limit": 1_000}
        found: list[QueueBounds] = []
        cursor = None
        while True:
            page = await self.caller.call(get("topics", topic, "queues", **query, cursor=cursor))
            found += page["items"]
            cursor = page.get("next")
            if not cursor:
                return found

    async def info(self) -> Json:
        return await self.caller.call(get("info"))

    async def stats(self, /, report: str, **query: Any) -> Json:
        """Return one page of a report: traffic, latency, lag, redelivery, reconciliation ...

        `query` are the parameters of the API, with `since` and `until` for `from` and `to`.
        """
        names = {"since": "from", "until": "to"}
        return await self.caller.call(
            get("stats", report, **{names.get(name, name): value for name, value in query.items()})
        )

    async def audit(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Json]:
        """Return one page of the audit log, newest first."""
        return cast("Page[Json]", await self.caller.call(get("audit", limit=limit, cursor=cursor)))

    async def _act(self, group: str, verb: str, **members: Any) -> Json:
        return await self.caller.call(post(given(**members), "groups", group, verb))

    async def _settle(self, group: str, verb: str, **members: Any) -> Outcome:
        return cast("Outcome", await self._act(group, verb, **members))

    async def _settle_all(self, group: str, verb: str, **members: Any) -> list[Outcome]:
        return cast("list[Outcome]", (await self._act(group, verb, **members))["results"])
