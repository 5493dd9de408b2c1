"""The blocking client of the gateway API. Its methods are those of `AsyncClient`, with the same signatures."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqgate.client.alarms import AsyncAlarms
from mqgate.client.async_client import AsyncClient
from mqgate.client.blocking import Facade, blocking
from mqgate.client.bulk_read import batches
from mqgate.client.operations import AsyncDeadLetters, AsyncEntries, AsyncGroups, AsyncKeys, AsyncScheduled
from mqgate.client.requests import get
from mqgate.client.transport import BlockingTransport

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Client"]


class Keys(Facade[AsyncKeys]):
    list = blocking(AsyncKeys.list)
    create = blocking(AsyncKeys.create)
    delete = blocking(AsyncKeys.delete)


class Entries(Facade[AsyncEntries]):
    list = blocking(AsyncEntries.list)
    put = blocking(AsyncEntries.put)
    create = blocking(AsyncEntries.create)
    get = blocking(AsyncEntries.get)
    delete = blocking(AsyncEntries.delete)


class Groups(Facade[AsyncGroups]):
    list = blocking(AsyncGroups.list)
    put = blocking(AsyncGroups.put)
    create = blocking(AsyncGroups.create)
    patch = blocking(AsyncGroups.patch)
    get = blocking(AsyncGroups.get)
    delete = blocking(AsyncGroups.delete)


class DeadLetters(Facade[AsyncDeadLetters]):
    list = blocking(AsyncDeadLetters.list)
    get = blocking(AsyncDeadLetters.get)
    redrive = blocking(AsyncDeadLetters.redrive)
    purge = blocking(AsyncDeadLetters.purge)


class Scheduled(Facade[AsyncScheduled]):
    list = blocking(AsyncScheduled.list)
    get = blocking(AsyncScheduled.get)
    cancel = blocking(AsyncScheduled.cancel)
    retime = blocking(AsyncScheduled.retime)


class Alarms(Facade[AsyncAlarms]):
    list = blocking(AsyncAlarms.list)
    history = blocking(AsyncAlarms.history)
    inbox = blocking(AsyncAlarms.inbox)
    rules = blocking(AsyncAlarms.rules)
    put_rule = blocking(AsyncAlarms.put_rule)
    reset_rule = blocking(AsyncAlarms.reset_rule)
    silences = blocking(AsyncAlarms.silences)
    silence = blocking(AsyncAlarms.silence)
    end_silence = blocking(AsyncAlarms.end_silence)
    channels = blocking(AsyncAlarms.channels)
    put_channel = blocking(AsyncAlarms.put_channel)
    delete_channel = blocking(AsyncAlarms.delete_channel)
    test_channel = blocking(AsyncAlarms.test_channel)


class Client(Facade[AsyncClient]):
    """Client of one gateway, or of several that serve the same messages; threads may share it.

    See `AsyncClient` for its arguments and errors.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        timeout: float | timedelta = 30.0,
        retry_for: float | timedelta = 30.0,
    ) -> None:
        core = AsyncClient(url, key, timeout=timeout, retry_for=retry_for, transport=BlockingTransport)
        super().__init__(core)
        self.topics = Entries(core.topics)
        self.producers = Entries(core.producers)
        self.groups = Groups(core.groups)
        self.keys = Keys(core.keys)
        self.accounts = Entries(core.accounts)
        self.teams = Entries(core.teams)
        self.scheduled = Scheduled(core.scheduled)
        self.dead_letters = DeadLetters(core.dead_letters)
        self.alarms = Alarms(core.alarms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The gateway that the next call is sent to."""
        return self.core.url

    close = blocking(AsyncClient.close)
    send = blocking(AsyncClient.send)
    call = blocking(AsyncClient.call)
    publish = blocking(AsyncClient.publish)
    publish_batch = blocking(AsyncClient.publish_batch)
    publish_raw = blocking(AsyncClient.publish_raw)
    receive = blocking(AsyncClient.receive)
    ack = blocking(AsyncClient.ack)
    ack_all = blocking(AsyncClient.ack_all)
    nack = blocking(AsyncClient.nack)
    nack_all = blocking(AsyncClient.nack_all)
    extend = blocking(AsyncClient.extend)
    extend_all = blocking(AsyncClient.extend_all)
    lag = blocking(AsyncClient.lag)
    clients = blocking(AsyncClient.clients)
    seek = blocking(AsyncClient.seek)
    pause = blocking(AsyncClient.pause)
    resume = blocking(AsyncClient.resume)
    queues = blocking(AsyncClient.queues)
    info = blocking(AsyncClient.info)
    stats = blocking(AsyncClient.stats)
    audit = blocking(AsyncClient.audit)

    def read_queue(
        self,
        topic: str,
        queue: str,
        offset: int,
        max: int,  # noqa: A002 - the name in the API
        columns: Sequence[str] | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield messages from an offset on as Arrow batches: `max` of them, or fewer at the end of the queue.

        An interrupted stream raises GatewayUnreachable after the batches that arrived; nothing is repeated. Each read
        has its own connection, which is closed at the end or with the iterator.
        """
        selected = None if columns is None else ",".join(columns)
        call = get("topics", topic, "queues", queue, "messages", offset=offset, max=max, columns=selected)
        return batches(self.core.caller, call)
