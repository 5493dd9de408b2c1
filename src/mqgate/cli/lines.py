"""`mqgate pub --lines`: one message for each line, sent in batches.

With an idempotency key each line has its own, made of the key and the line's number: the same file sent again with
the same key stores nothing twice.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from mqgate.cli.output import note, plain
from mqgate.cli.session import Session
from mqgate.client import Client, ClientError, GatewayError, envelope

__all__ = ["Lines", "in_batches"]

_MOST_MESSAGES = 100
# Well below any gateway's limit on a request, also where every byte needs six in JSON.
_MOST_BYTES = 128 * 1024
Line = tuple[int, bytes]


def in_batches(lines: Iterable[bytes]) -> Iterator[list[Line]]:
    """Numbered lines without their ends, in batches bounded by count and size; empty lines stay out."""
    batch: list[Line] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if not body:
            continue
        if batch and (len(batch) == _MOST_MESSAGES or size + len(body) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((number, body))
        size += len(body)
    if batch:
        yield batch


class Lines:
    """One run over many lines: what went in, what was refused, and how far it came."""

    def __init__(
        self, session: Session, client: Client, topic: str, producer: str | None, metadata: dict[str, Any]
    ) -> None:
        self._session = session
        self._client = client
        self._topic = topic
        self._producer = producer
        self._metadata = metadata
        self._once = metadata["idempotency_key"]
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
                self._say_where(batch, error)
                raise
            for (number, _), result in zip(batch, results, strict=True):
                self._record(number, result)
            self._show_count(is_last=False)
        self._show_count(is_last=True)
        if self._refused:
            raise click.exceptions.Exit(1)

    def _envelope(self, number: int, body: bytes) -> dict[str, Any]:
        once = None if self._once is None else f"{self._once}:{number}"
        return envelope(body, **self._metadata | {"idempotency_key": once})

    def _record(self, number: int, result: dict[str, Any]) -> None:
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
        rare = {"scheduled": self._scheduled, "there before": self._duplicate}
        counts = [f"{self._published} published", *(f"{count} {word}" for word, count in rare.items() if count)]
        return ", ".join([*counts, f"{self._refused} refused"])

    def _show_count(self, *, is_last: bool) -> None:
        # A terminal shows one line that counts up; a file gets only the last.
        is_terminal = sys.stderr.isatty()
        if is_last or is_terminal:
            click.echo(("\r" if is_terminal else "") + self._count(), nl=is_last, err=True)

    def _say_where(self, batch: list[Line], error: BaseException) -> None:
        first, last = batch[0][0], batch[-1][0]
        advice = "go on from there" if self._once is None else "send the whole again with the same key"
        note(f"{self._count()} before line {first}; {advice}")
        if not isinstance(error, GatewayError) and getattr(error, "is_outcome_unknown", True):
            note(f"lines {first} to {last} may have been published")
