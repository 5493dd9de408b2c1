"""`mqgate pub`: put messages into a topic."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click

from mqgate.cli.output import examples, note, plain
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import name, pair
from mqgate.client import Client, ClientError, GatewayError, envelope

__all__ = ["in_batches", "pub"]

_MOST_MESSAGES = 100
# Well below any gateway's limit on a request, also where every byte needs six in JSON.
_MOST_BYTES = 128 * 1024
Line = tuple[int, bytes]


@click.command(
    epilog=examples(
        "mqgate pub orders hello --producer shop",
        "mqgate pub orders --file order.json --message-key customer-7 --property source=web",
        "printf hello | mqgate pub orders -",
        "mqgate pub orders --lines < orders.ndjson",
    )
)
@click.argument("topic", type=name)
@click.argument("body", required=False)
@click.option("--file", type=click.File("rb"), help="Take the body (or with --lines the lines) from this file.")
@click.option("--lines", is_flag=True, help="One message for each line of the file or of stdin, empty ones left out.")
@click.option("--producer", help="Publish as this producer; with a key it is the key's own.")
@click.option("--message-key", help="Messages with the same key go to the same queue.")
@click.option("--tag", help="A tag that groups can filter by.")
@click.option(
    "--property", "properties", type=pair, multiple=True, metavar="NAME=VALUE", help="A property; repeatable."
)
@with_session
def pub(
    session: Session,
    /,
    *,
    topic: str,
    body: str | None,
    file: BinaryIO | None,
    lines: bool,
    producer: str | None,
    message_key: str | None,
    tag: str | None,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Publish BODY to TOPIC; `-` takes it from stdin, byte for byte.

    With --lines messages are sent in batches of 100. A line that is refused is named on stderr and the others
    go on; if the gateway stops answering, the line to go on from is named. The exit code is 1 if any line was
    refused.
    """
    metadata = {"key": message_key, "tag": tag, "properties": dict(properties)}
    with session.connect() as client:
        if lines:
            if body not in {None, "-"}:
                raise click.UsageError("--lines reads from stdin or --file, not from BODY")
            source = file or sys.stdin.buffer
            _Lines(session, client, topic, producer, metadata).publish(source)
        else:
            session.show(client.publish(topic, _one_body(body, file), producer=producer, **metadata))


def _one_body(body: str | None, file: BinaryIO | None) -> bytes:
    if (body is None) == (file is None):
        raise click.UsageError("give the message as BODY, as - for stdin, or by --file")
    if file is not None:
        return file.read()
    if body == "-":
        return sys.stdin.buffer.read()
    return os.fsencode(body or "")


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


class _Lines:
    """One run over many lines: what went in, what was refused, and how far it came."""

    def __init__(
        self, session: Session, client: Client, topic: str, producer: str | None, metadata: dict[str, Any]
    ) -> None:
        self._session = session
        self._client = client
        self._topic = topic
        self._producer = producer
        self._metadata = metadata
        self._published = 0
        self._refused = 0

    def publish(self, source: Iterable[bytes]) -> None:
        for batch in in_batches(source):
            try:
                results = self._client.publish_batch(
                    self._topic,
                    [envelope(body, **self._metadata) for _, body in batch],
                    producer=self._producer,
                )
            except (ClientError, KeyboardInterrupt) as error:
                self._say_where(batch, error)
                raise
            for (number, _), result in zip(batch, results, strict=True):
                self._record(number, result)
            self._count(is_last=False)
        self._count(is_last=True)
        if self._refused:
            raise click.exceptions.Exit(1)

    def _record(self, number: int, result: dict[str, Any]) -> None:
        error = result.get("error")
        self._published += error is None
        self._refused += error is not None
        if self._session.is_json:
            click.echo(json.dumps({"line": number, **result}, ensure_ascii=False))
        elif error is not None:
            text = f"error: line {number}: {error.get('detail')} ({error.get('code')})"
            click.echo(plain(text), err=True)

    def _count(self, *, is_last: bool) -> None:
        # A terminal shows one line that counts up; a file gets only the last.
        is_terminal = sys.stderr.isatty()
        if is_last or is_terminal:
            start = "\r" if is_terminal else ""
            click.echo(f"{start}{self._published} published, {self._refused} refused", nl=is_last, err=True)

    def _say_where(self, batch: list[Line], error: BaseException) -> None:
        first, last = batch[0][0], batch[-1][0]
        note(f"{self._published} published, {self._refused} refused before line {first}; go on from there")
        if not isinstance(error, GatewayError) and getattr(error, "is_outcome_unknown", True):
            note(f"lines {first} to {last} may have been published")
