"""`mqgate pub`: put messages into a topic."""

import os
import sys
from typing import Any, BinaryIO

import click

from mqgate.cli.lines import Lines
from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import duration, instant, name, pair

__all__ = ["pub"]


@click.command(
    epilog=examples(
        "mqgate pub orders hello --producer shop",
        "mqgate pub orders --file order.json --message-key customer-7 --property source=web",
        "printf hello | mqgate pub orders -",
        "mqgate pub orders --lines < orders.ndjson",
        'mqgate pub orders "pay now" --delay 15m',
        'mqgate pub orders "happy new year" --deliver-at "$(date -u +%Y)-12-31T23:59:59Z"',
        "mqgate pub orders --file order-17.json --idempotency-key order-17",
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
@click.option("--delay", type=duration, metavar="DURATION", help="Deliver so long from now: 30s, 15m, 2h, 10d.")
@click.option(
    "--deliver-at", type=instant, metavar="INSTANT", help="Deliver at this instant, like 2030-01-31T12:00:00Z."
)
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="Store it once, however often it is sent with this key; with --lines each line counts by its number.",
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
    properties: tuple[tuple[str, str], ...],
    **metadata: Any,
) -> None:
    """Publish BODY to TOPIC; `-` takes it from stdin, byte for byte.

    With --lines messages are sent in batches of 100. A line that is refused is named on stderr and the others
    go on; if the gateway stops answering, the line to go on from is named. The exit code is 1 if any line was
    refused.
    """
    if metadata["delay"] is not None and metadata["deliver_at"] is not None:
        raise click.UsageError("give either --delay or --deliver-at")
    metadata |= {"key": message_key, "properties": dict(properties)}
    with session.connect() as client:
        if lines:
            if body not in {None, "-"}:
                raise click.UsageError("--lines reads from stdin or --file, not from BODY")
            Lines(session, client, topic, producer, metadata).publish(file or sys.stdin.buffer)
            return
        answer = client.publish(topic, _one_body(body, file), producer=producer, **metadata)
    session.show(answer)
    if not session.is_json:
        _explain(answer)


def _one_body(body: str | None, file: BinaryIO | None) -> bytes:
    if (body is None) == (file is None):
        raise click.UsageError("give the message as BODY, as - for stdin, or by --file")
    if file is not None:
        return file.read()
    if body == "-":
        return sys.stdin.buffer.read()
    return os.fsencode(body or "")


def _explain(answer: dict[str, Any]) -> None:
    if answer.get("duplicate"):
        note("this was published before with the same idempotency key; nothing was stored now")
    elif "deliverAt" in answer:
        note(f"scheduled; until then: mqgate scheduled cancel {answer['id']}")
