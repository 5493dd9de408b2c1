"""The log, read directly from RocketMQ brokers, without a gateway.

It is created from plain values, so that each executor creates its own. The first call opens the connections. They
belong to the process: a forked child opens its own.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

import pyarrow as pa

from mqgate.rocketmq import Credentials, RocketMQClient
from mqgate.rocketmq.columns import Rows
from mqgate.rocketmq.paging import Paging
from mqgate.rocketmq.read_ahead import pages
from mqgate.rocketmq.remoting.pulled_page import PulledPage
from mqgate.spark.log import FIELDS, Ends, LogError
from mqgate.spark.rocketmq_cluster import Cluster, QueueRef
from mqgate.spark.rocketmq_loop import LoopThread

__all__ = ["RocketMQLog"]

# Concurrent pulls of one range: enough to keep a broker busy while pages are decoded.
_AHEAD = 4
# Large batches reduce the fixed cost per batch in Spark, and increase memory use.
_MAX_ROWS = 4_096
_MAX_BYTES = 4 << 20
_Value = TypeVar("_Value")


class RocketMQLog:
    """A Log (see log.py) of a cluster. `name_servers` are host:port, separated by semicolons or commas."""

    def __init__(
        self,
        name_servers: str,
        *,
        access_key: str = "",
        secret_key: str = "",
        security_token: str = "",
        namespace: str = "",
        tls: bool = False,
        tls_ca: str = "",
        timeout: float = 10.0,
        retries: int = 3,
    ) -> None:
        self._servers = [address for address in re.split(r"[;,\s]+", name_servers) if address]
        self._credentials = (
            Credentials(access_key=access_key, secret_key=secret_key, security_token=security_token)
            if access_key
            else None
        )
        self._namespace = namespace
        self._tls = tls
        self._tls_ca = tls_ca
        self._timeout = timeout
        self._retries = retries
        self._process = 0
        self._thread: LoopThread | None = None
        self._cluster: Cluster | None = None

    def topics(self) -> list[str]:
        thread, cluster = self._open()
        return thread.run(cluster.topics())

    def ends(self, topic: str) -> dict[str, Ends]:
        thread, cluster = self._open()
        return _by_name(thread.run(cluster.ends(topic)))

    def offsets_at(self, topic: str, at_ms: int) -> dict[str, int]:
        thread, cluster = self._open()
        return _by_name(thread.run(cluster.offsets_at(topic, at_ms)))

    def committed(self, topic: str, group: str) -> dict[str, int]:
        thread, cluster = self._open()
        return _by_name(thread.run(cluster.committed(topic, group)))

    def commit(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        thread, cluster = self._open()
        thread.run(cluster.commit({QueueRef.of(topic, queue): offset for queue, offset in offsets.items()}, group))

    def read(self, topic: str, queue: str, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        thread, cluster = self._open()
        reader = thread.run(_start_reader(cluster, QueueRef.of(topic, queue), start, end, columns))
        try:
            while (batch := thread.run(reader.next())) is not None:
                yield batch
        finally:
            # Do not wait: this may run during interpreter shutdown, when no other thread runs.
            thread.call_soon(reader.cancel)

    def close(self) -> None:
        thread, cluster = self._thread, self._cluster
        if thread is not None and cluster is not None and self._process == os.getpid():
            thread.run(cluster.close())
            thread.close()
        self._thread = self._cluster = None

    def _open(self) -> tuple[LoopThread, Cluster]:
        if self._thread is None or self._cluster is None or self._process != os.getpid():
            self._thread, self._cluster, self._process = LoopThread("mqgate-rocketmq"), self._connect(), os.getpid()
        return self._thread, self._cluster

    def _connect(self) -> Cluster:
        client = RocketMQClient(
            self._servers, credentials=self._credentials, tls=self._context(), deadline=self._timeout
        )
        return Cluster(client, namespace=self._namespace, retries=self._retries)

    def _context(self) -> ssl.SSLContext | None:
        if not self._tls:
            return None
        try:
            return ssl.create_default_context(cafile=self._tls_ca or None)
        except OSError as error:
            raise LogError(f"`tlsCa` {self._tls_ca} is not a file of certificates: {error}") from error


class _RangeReader:
    """Reader of a range that prepares the next batch while the current one is used."""

    def __init__(self, cluster: Cluster, queue_ref: QueueRef, paging: Paging[PulledPage], rows: Rows) -> None:
        self._ready: asyncio.Queue[pa.RecordBatch | Exception | None] = asyncio.Queue(1)
        self._work = asyncio.create_task(self._fill(cluster, queue_ref, paging, rows))

    async def _fill(self, cluster: Cluster, queue_ref: QueueRef, paging: Paging[PulledPage], rows: Rows) -> None:
        last: Exception | None = None
        try:
            await cluster.resolve(queue_ref)
            async with aclosing(pages(paging, lambda offset, count: cluster.pull(queue_ref, offset, count))) as found:
                async for page in found:
                    rows.add(page)
                    if rows.count >= _MAX_ROWS or rows.bytes >= _MAX_BYTES:
                        await self._ready.put(_batch(rows))
            if rows.count:
                await self._ready.put(_batch(rows))
        except Exception as error:  # noqa: BLE001 - next() raises it
            last = error
        await self._ready.put(last)

    async def next(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end."""
        found = await self._ready.get()
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(self) -> None:
        self._work.cancel()


async def _start_reader(
    cluster: Cluster, queue_ref: QueueRef, start: int, end: int, columns: Sequence[str]
) -> _RangeReader:
    return _RangeReader(cluster, queue_ref, Paging(start, end, ahead=_AHEAD), Rows(columns))


def _batch(rows: Rows) -> pa.RecordBatch:
    count, found = rows.count, rows.take()
    if not found:
        # A batch without columns would have no length.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_pydict({name: column.cast(FIELDS[name]) for name, column in found.items()})


def _by_name(found: Mapping[QueueRef, _Value]) -> dict[str, _Value]:
    return {queue_ref.name: value for queue_ref, value in found.items()}
