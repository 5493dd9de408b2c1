"""The client of one gateway."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mqgate.client.alarms import Alarms
from mqgate.client.dead_letters import DeadLetters
from mqgate.client.message import envelope
from mqgate.client.registry import Entries, Groups, Keys, every
from mqgate.client.scheduled import Scheduled
from mqgate.client.transport import Duration, Instant, Json, Transport, given, path, wire

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Client"]

_DEFAULT_TIMEOUT = timedelta(seconds=30)
_NO_WAIT = timedelta(0)


class Client:
    """Client of one gateway with a connection pool; threads may share it.

    Calls return the JSON of the API as dicts. They raise GatewayError if the gateway refuses the request, and
    GatewayUnreachable if it does not respond. `timeout` limits connecting and each response; the wait of a long poll
    is added to it.
    """

    def __init__(self, url: str, key: str | None = None, timeout: timedelta = _DEFAULT_TIMEOUT) -> None:
        self.transport = Transport(url, key, timeout)
        self.topics = Entries(self.transport, "topics")
        self.producers = Entries(self.transport, "producers")
        self.groups = Groups(self.transport, "groups")
        self.keys = Keys(self.transport, "keys")
        self.scheduled = Scheduled(self.transport)
        self.dead_letters = DeadLetters(self.transport)
        self.alarms = Alarms(self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.transport.close()

    def publish(self, topic: str, body: Any, *, producer: str | None = None, **metadata: Any) -> Json:
        """Store or schedule one message. `metadata` are the arguments of `envelope`."""
        return self._publish(topic, envelope(body, **metadata), producer)

    def publish_batch(
        self, topic: str, envelopes: Sequence[Mapping[str, Any]], *, producer: str | None = None
    ) -> list[Json]:
        """Store 1 to 1,000 messages. Return one result per message, in order, with `error` if it was refused."""
        results: list[Json] = self._publish(topic, {"messages": envelopes}, producer)["results"]
        return results

    def publish_raw(
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
    ) -> Json:
        """Store the body unchanged and send the metadata in headers, which makes property names lower-case."""
        if content_type.partition(";")[0].strip().lower() == "application/json":
            raise ValueError("content_type application/json denotes an envelope: use publish")
        named = {
            "Mqgate-Key": key,
            "Mqgate-Tag": tag,
            "Mqgate-Delay": delay,
            "Mqgate-Deliver-At": deliver_at,
            "Idempotency-Key": idempotency_key,
        }
        named |= {f"Mqgate-Property-{name}": value for name, value in (properties or {}).items()}
        headers = {name: str(wire(value)) for name, value in named.items() if value is not None}
        return self.transport.call_raw(
            "POST",
            path("topics", topic, "messages"),
            query={"producer": producer},
            content=body,
            headers={"Content-Type": content_type} | headers,
        )

    def _publish(self, topic: str, body: Mapping[str, Any], producer: str | None) -> Json:
        return self.transport.call("POST", path("topics", topic, "messages"), body, query={"producer": producer})

    def receive(
        self,
        group: str,
        *,
        max_messages: int | None = None,
        wait: timedelta = _NO_WAIT,
        visibility: Duration | None = None,
        client_id: str | None = None,
        attempt_id: str | None = None,
        ack: Sequence[str] = (),
    ) -> Json:
        """Lease messages, and wait up to 60 s for the first. `ack` acknowledges earlier receipts before that.

        Their outcomes are in `acked`. After a lost response, the same `attempt_id` returns the same leases.
        """
        body = given(
            max=max_messages,
            wait=wait or None,
            visibility=visibility,
            clientId=client_id,
            attemptId=attempt_id,
            ack=list(ack) or None,
        )
        return self.transport.call("POST", path("groups", group, "receive"), body, wait=wait)

    def ack(self, group: str, receipt: str, *, through: int | None = None) -> Json:
        """Confirm that the leased work is complete, up to the offset `through` of a queue batch if it is given."""
        return self._act(group, "ack", receipt=receipt, through=through)

    def ack_all(self, group: str, receipts: Sequence[str]) -> list[Json]:
        """Acknowledge 1 to 1,000 receipts. Return one outcome per receipt, also for refused ones."""
        return self._results(group, "ack", receipts=list(receipts))

    def nack(self, group: str, receipt: str, *, delay: Duration | None = None, reason: str | None = None) -> Json:
        """Release a lease whose work failed."""
        return self._act(group, "nack", receipt=receipt, delay=delay, reason=reason)

    def nack_all(
        self,
        group: str,
        receipts: Sequence[str],
        *,
        delay: Duration | None = None,
        reason: str | None = None,
    ) -> list[Json]:
        return self._results(group, "nack", receipts=list(receipts), delay=delay, reason=reason)

    def extend(self, group: str, receipt: str, visibility: Duration | None = None) -> Json:
        """Extend a lease by `visibility` from now."""
        return self._act(group, "extend", receipt=receipt, visibility=visibility)

    def extend_all(self, group: str, receipts: Sequence[str], visibility: Duration | None = None) -> list[Json]:
        return self._results(group, "extend", receipts=list(receipts), visibility=visibility)

    def lag(self, group: str, *, client_id: str | None = None) -> Json:
        return self.transport.call("GET", path("groups", group, "lag"), query={"clientId": client_id})

    def clients(self, group: str, *, limit: int | None = None, cursor: str | None = None) -> Json:
        query = {"limit": limit, "cursor": cursor}
        return self.transport.call("GET", path("groups", group, "clients"), query=query)

    def seek(
        self,
        group: str,
        to: Instant | Mapping[str, int],
        *,
        client_id: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Json:
        """Seek a group to "earliest", "latest", an instant or offsets by queue. Older receipts become invalid."""
        return self._act(group, "seek", to=to, clientId=client_id, dryRun=dry_run or None, reason=reason)

    def queues(self, topic: str, *, at: Instant | None = None, times: bool = True) -> list[Json]:
        """Return the bounds of all queues; with `at` also `offsetAt`, the first offset stored at or after it.

        The call is faster without `times`. A queue that is not `open` cannot be read now; its bounds are the last known
        ones.
        """
        query = {"at": at, "times": None if times else "false", "limit": 1_000}
        address = path("topics", topic, "queues")
        return list(every(lambda cursor: self.transport.call("GET", address, query=query | {"cursor": cursor})))

    def read_queue(
        self, topic: str, queue: str, offset: int, max_messages: int, columns: Sequence[str] | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield messages from an offset on as Arrow batches: `max_messages` of them, or fewer at the end of the queue.

        An interrupted stream raises GatewayUnreachable after the batches that arrived. Each read has its own
        connection, which is closed at the end or with the iterator.
        """
        query = {"offset": offset, "max": max_messages, "columns": None if columns is None else ",".join(columns)}
        return self.transport.batches(path("topics", topic, "queues", queue, "messages"), query)

    def pause(self, group: str, *, reason: str | None = None) -> Json:
        return self._act(group, "pause", reason=reason)

    def resume(self, group: str, *, reason: str | None = None) -> Json:
        return self._act(group, "resume", reason=reason)

    def info(self) -> Json:
        return self.transport.call("GET", path("info"))

    def stats(self, report: str, **query: Any) -> Json:
        """Return one page of a report: traffic, latency, lag, redelivery, reconciliation ...

        `query` are the parameters of the API, with `since` and `until` for `from` and `to`.
        """
        names = {"since": "from", "until": "to"}
        parameters = {names.get(name, name): value for name, value in query.items()}
        return self.transport.call("GET", path("stats", report), query=parameters)

    def audit(self, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """Return one page of the audit log, newest first."""
        return self.transport.call("GET", path("audit"), query={"limit": limit, "cursor": cursor})

    def _act(self, group: str, verb: str, **members: Any) -> Json:
        return self.transport.call("POST", path("groups", group, verb), given(**members))

    def _results(self, group: str, verb: str, **members: Any) -> list[Json]:
        results: list[Json] = self._act(group, verb, **members)["results"]
        return results
