"""`mqgate pub --lines`: one message per line, sent in batches.

With an idempotency key, each line has its own key, made of that key and the line number. The same file sent again with
the same key stores no message twice.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from mqgate.cli.output import note, plain
from mqgate.cli.session import Session
from mqgate.client import Client, ClientError, GatewayError, envelope

__all__ = ["Lines", "in_batches"]

_MAX_MESSAGES = 100
# Far below the default request limit, even if JSON escapes need six bytes for every byte.
_MAX_BYTES = 128 * 1024
Line = tuple[int, bytes]


def in_batches(lines: Iterable[bytes]) -> Iterator[list[Line]]:
    """Yield batches of numbered lines without their line ends, limited by count and size; skip empty lines."""
    batch: list[Line] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if not body:
            continue
        if batch and (len(batch) == _MAX_MESSAGES or size + len(body) > _MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((number, body))
        size += len(body)
    if batch:
        yield batch


class Lines:
    """One run over many lines, which counts published and refused messages."""

    def __init__(
        self, session: Session, client: Client, topic: str, producer: str | None, metadata: dict[str, Any]
    ) -> None:
        self._session = session
        self._client = client
        self._topic = topic
        self._producer = producer
        self._metadata = metadata
        self._idempotency_key = metadata["idempotency_key"]
        self._published = 0
        self._scheduled = 0
        self._duplicate = 0
        self._refused = 0

    def publish(self, source: Iterable[bytes]) -> None:
        for batch in in_batches(source):
            try:
                results = self._client.publish_batch(
                    self._topic, [self._envelope(*line) for line in batch], producer=self._producer
                )
            except (ClientError, KeyboardInterrupt) as error:
                self._report_position(batch, error)
                raise
            for (number, _), result in zip(batch, results, strict=True):
                self._record(number, result)
            self._show_count(is_last=False)
        self._show_count(is_last=True)
        if self._refused:
            raise click.exceptions.Exit(1)

    def _envelope(self, number: int, body: bytes) -> dict[str, Any]:
        key = None if self._idempotency_key is None else f"{self._idempotency_key}:{number}"
        return envelope(body, **self._metadata | {"idempotency_key": key})

    def _record(self, number: int, result: Mapping[str, Any]) -> None:
        error = result.get("error")
        if error is not None:
            self._refused += 1
        elif result.get("duplicate"):
            self._duplicate += 1
        elif "deliverAt" in result:
            self._scheduled += 1
        else:
            self._published += 1
        if self._session.is_json:
            click.echo(json.dumps({"line": number, **result}, ensure_ascii=False))
        elif error is not None:
            text = f"error: line {number}: {error.get('detail')} ({error.get('code')})"
            click.echo(plain(text), err=True)

    def _count(self) -> str:
        others = {"scheduled": self._scheduled, "duplicate": self._duplicate}
        counts = [f"{self._published} published", *(f"{count} {word}" for word, count in others.items() if count)]
        return ", ".join([*counts, f"{self._refused} refused"])

    def _show_count(self, *, is_last: bool) -> None:
        # A terminal shows one line that is updated; a file gets only the last count.
        is_terminal = sys.stderr.isatty()
        if is_last or is_terminal:
            click.echo(("\r" if is_terminal else "") + self._count(), nl=is_last, err=True)

    def _report_position(self, batch: list[Line], error: BaseException) -> None:
        first, last = batch[0][0], batch[-1][0]
        advice = (
            "continue from there" if self._idempotency_key is None else "send the whole file again with the same key"
        )
        note(f"{self._count()} before line {first}; {advice}")
        if not isinstance(error, GatewayError) and getattr(error, "is_outcome_unknown", True):
            note(f"lines {first} to {last} may have been published")
