"""Rows as messages: Arrow in, envelopes out, each with a key by which the gateway knows a repeat.

The key of a row is a digest of who writes (query and batch, or the write's id), of the partition and of the row as it
is sent, plus how often the same row came before in the partition. So a task that runs again sends the same keys even
where its rows come in another order, and no key ever stands for two bodies.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mqgate.spark.log import LogError

__all__ = ["Row", "RowRefused", "chunks", "rows"]

# A request that is larger is cut, so that neither we nor the gateway hold much at once.
_MAX_BYTES = 4 << 20
_DIGEST, _PREFIX = 12, 8


class Row(NamedTuple):
    """A message as it is sent; `number` counts a partition's rows from 0."""

    number: int
    envelope: bytes


class RowRefused(LogError):
    """A row that is no message, to us or to the gateway; the text names row, column and reason."""

    def __init__(self, number: int, column: str | None, reason: str) -> None:
        super().__init__(f"row {number} of its partition{f', column {column}' if column else ''}: {reason}")


class _Envelope(msgspec.Struct, rename="camel", omit_defaults=True):
    body: str | None = None
    body_base64: str | None = None
    key: str | None = None
    tag: str | None = None
    properties: dict[str, str] | None = None
    deliver_at: int | None = None


_encode = msgspec.json.Encoder().encode


def rows(batches: Iterable[pa.RecordBatch], identity: str) -> Iterator[Row]:
    """The messages of a partition in order; `identity` says whose partition it is, and must not change in a repeat."""
    seed = hashlib.blake2b(identity.encode(), digest_size=_DIGEST)
    # Keys that come together begin alike: they lie together where they are remembered, which is cheaper by a fifth.
    begin = b',"idempotencyKey":"' + seed.hexdigest()[:_PREFIX].encode()
    earlier = _Earlier()
    number = 0
    for batch in batches:
        for envelope, key in _envelopes(batch, number):
            if key is None:
                hashed = seed.copy()
                hashed.update(envelope)
                told = begin + _told(hashed.digest(), earlier) + b'"}'
            else:
                told = b',"idempotencyKey":' + _encode(key) + b"}"
            yield Row(number, envelope[:-1] + told)
            number += 1


def chunks(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Rows by the request: at most so many, and not too many bytes unless a single row has them."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == most or size + len(row.envelope) > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row.envelope)
    if chunk:
        yield chunk


class _Earlier:
    """How often a digest came before.

    A dict of all of them would take 150 bytes a row, which for a partition of ten million rows is too much. Ten
    bytes of a digest tell them apart (should two be alike, one is merely counted as a repeat): two choose a bucket,
    eight stand in it. Only those that do repeat are counted.
    """

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}
        self._counts: dict[bytes, int] = {}

    def count(self, digest: bytes) -> int:
        """How often it came before; it counts from now on."""
        bucket = self._buckets.setdefault(digest[:2], bytearray())
        sought = digest[2:10]
        place = bucket.find(sought)
        while place % 8 and place >= 0:
            place = bucket.find(sought, place + 1)
        if place < 0:
            bucket += sought
            return 0
        found = self._counts[digest] = self._counts.get(digest, 0) + 1
        return found


def _told(digest: bytes, earlier: _Earlier) -> bytes:
    before = earlier.count(digest)
    if before:
        digest = hashlib.blake2b(digest + before.to_bytes(8), digest_size=_DIGEST).digest()
    return digest.hex().encode()


def _envelopes(batch: pa.RecordBatch, first: int) -> Iterator[tuple[bytes, str | None]]:
    columns = zip(
        _column(batch, "body", first),
        _column(batch, "key", first),
        _column(batch, "tag", first),
        _column(batch, "properties", first),
        _column(batch, "deliverAt", first),
        _column(batch, "idempotencyKey", first),
        strict=False,  # a column that is not there never ends
    )
    for number, (body, key, tag, properties, deliver_at, idempotency_key) in enumerate(columns, first):
        if body is None:
            raise RowRefused(number, "body", "must not be null: filter such rows, or coalesce the column")
        try:
            text, in_base64 = body.decode(), None
        except UnicodeDecodeError:
            text, in_base64 = None, base64.b64encode(body).decode()
        envelope = _Envelope(
            text,
            in_base64,
            key,
            tag,
            None if properties is None else _properties(properties, number),
            # Never early, so up to the next whole millisecond; the past means now, however long ago.
            None if deliver_at is None else max(0, -(-deliver_at // 1000)),
        )
        yield _encode(envelope), idempotency_key


def _column(batch: pa.RecordBatch, name: str, first: int) -> Iterable[Any]:
    place = batch.schema.get_field_index(name)
    if place < 0:
        return repeat(None)
    column = batch.column(place)
    if name == "body":
        # Text, too: what Spark calls a string may be no UTF-8.
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    elif name == "deliverAt":
        column = pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise RowRefused(first, name, "this row or one of the next holds text that is no UTF-8") from None
    return values


def _properties(given: str | list[tuple[str, str | None]], number: int) -> dict[str, str] | None:
    """By name, because a map's order is nobody's promise."""
    found = _parsed(given, number) if isinstance(given, str) else dict(given)
    for name, value in found.items():
        if not isinstance(value, str):
            raise RowRefused(number, "properties", f"the value of {name} must be text, not {json.dumps(value)}")
    return dict(sorted(found.items())) or None


def _parsed(text: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RowRefused(number, "properties", 'must be the text of a JSON object, such as {"origin": "spark"}')
    return found
