"""Converts Arrow rows to message envelopes with idempotency keys.

The key of a row is a digest of the write (query and batch, or write id), the partition, the encoded row, and the number
of earlier identical rows in the partition. A task that runs again sends the same keys, even in another row order. Two
different bodies never have the same key.
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

# Larger requests are split to limit memory use here and in the gateway.
_MAX_BYTES = 4 << 20
_DIGEST_BYTES, _PREFIX_LENGTH = 12, 8


class Row(NamedTuple):
    """An encoded message. `number` is the index of the row in its partition."""

    number: int
    envelope: bytes


class RowRefused(LogError):
    """A row that the sink or the gateway rejected. The text names the row, the column and the reason."""

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
    """Yield the messages of a partition in order. `identity` identifies the partition, also in a repeat."""
    seed = hashlib.blake2b(identity.encode(), digest_size=_DIGEST_BYTES)
    # A common prefix keeps the keys adjacent in the index of the store, which is 20 % cheaper.
    key_prefix = b',"idempotencyKey":"' + seed.hexdigest()[:_PREFIX_LENGTH].encode()
    counter = _DigestCounter()
    number = 0
    for batch in batches:
        for envelope, key in _envelopes(batch, number):
            if key is None:
                hashed = seed.copy()
                hashed.update(envelope)
                key_member = key_prefix + _row_key(hashed.digest(), counter) + b'"}'
            else:
                key_member = b',"idempotencyKey":' + _encode(key) + b"}"
            yield Row(number, envelope[:-1] + key_member)
            number += 1


def chunks(rows: Iterable[Row], max_rows: int) -> Iterator[list[Row]]:
    """Group rows into requests of at most `max_rows` rows and _MAX_BYTES bytes, or one larger row."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == max_rows or size + len(row.envelope) > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row.envelope)
    if chunk:
        yield chunk


class _DigestCounter:
    """Counter of earlier identical digests.

    A dict of all digests would need 150 bytes per row, too much for a partition of ten million rows. Ten bytes of a
    digest identify it: two select a bucket, eight are stored in it. A collision only counts as a repeat. Only
    repeated digests have a counter.
    """

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}
        self._counts: dict[bytes, int] = {}

    def count(self, digest: bytes) -> int:
        """Return how often the digest was counted before, and count it."""
        bucket = self._buckets.setdefault(digest[:2], bytearray())
        suffix = digest[2:10]
        index = bucket.find(suffix)
        while index % 8 and index >= 0:
            index = bucket.find(suffix, index + 1)
        if index < 0:
            bucket += suffix
            return 0
        found = self._counts[digest] = self._counts.get(digest, 0) + 1
        return found


def _row_key(digest: bytes, counter: _DigestCounter) -> bytes:
    before = counter.count(digest)
    if before:
        digest = hashlib.blake2b(digest + before.to_bytes(8), digest_size=_DIGEST_BYTES).digest()
    return digest.hex().encode()


def _envelopes(batch: pa.RecordBatch, first: int) -> Iterator[tuple[bytes, str | None]]:
    columns = zip(
        _column(batch, "body", first),
        _column(batch, "key", first),
        _column(batch, "tag", first),
        _column(batch, "properties", first),
        _column(batch, "deliverAt", first),
        _column(batch, "idempotencyKey", first),
        strict=False,  # a missing column is an infinite iterator
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
            # Round up, so that delivery is never early. A negative instant means now.
            None if deliver_at is None else max(0, -(-deliver_at // 1000)),
        )
        yield _encode(envelope), idempotency_key


def _column(batch: pa.RecordBatch, name: str, first: int) -> Iterable[Any]:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return repeat(None)
    column = batch.column(index)
    if name == "body":
        # A Spark string may contain bytes that are not UTF-8.
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    elif name == "deliverAt":
        column = pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise RowRefused(first, name, "this row or a later one contains text that is not UTF-8") from None
    return values


def _properties(given: str | list[tuple[str, str | None]], number: int) -> dict[str, str] | None:
    """Return the properties sorted by name, because the order of a map is not stable."""
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
        raise RowRefused(number, "properties", 'must be a JSON object, such as {"origin": "spark"}')
    return found
