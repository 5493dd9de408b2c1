"""`mqgate pub`: publish messages to a topic."""

import os
import sys
from collections.abc import Mapping
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
@click.option("--file", type=click.File("rb"), help="Read the body (with --lines, the lines) from this file.")
@click.option("--lines", is_flag=True, help="Publish one message per non-empty line of the file or of stdin.")
@click.option("--producer", help="Publish as this producer; default: the producer of the API key.")
@click.option("--message-key", help="Message key; messages with the same key are stored in the same queue.")
@click.option("--tag", help="Tag that groups can filter by.")
@click.option("--property", "properties", type=pair, multiple=True, metavar="NAME=VALUE", help="Property; repeatable.")
@click.option("--delay", type=duration, metavar="DURATION", help="Delay before delivery: 30s, 15m, 2h, 10d.")
@click.option("--deliver-at", type=instant, metavar="INSTANT", help="Delivery time, such as 2030-01-31T12:00:00Z.")
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="Store the message once per key; with --lines, once per key and line number.",
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
    """Publish BODY to TOPIC; `-` reads it from stdin, unchanged.

    With --lines, messages are sent in batches of 100. Refused lines are reported on stderr, and the others are
    published. If the gateway stops responding, the line to continue from is reported. The exit code is 1 if a line
    was refused.
    """
    if metadata["delay"] is not None and metadata["deliver_at"] is not None:
        raise click.UsageError("provide either --delay or --deliver-at")
    metadata |= {"key": message_key, "properties": dict(properties)}
    with session.connect() as client:
        if lines:
            if body not in {None, "-"}:
                raise click.UsageError("--lines reads from stdin or --file, not from BODY")
            Lines(session, client, topic, producer, metadata).publish(file or sys.stdin.buffer)
            return
        response = client.publish(topic, _one_body(body, file), producer=producer, **metadata)
    session.show(response)
    if not session.is_json:
        _explain(response)


def _one_body(body: str | None, file: BinaryIO | None) -> bytes:
    if (body is None) == (file is None):
        raise click.UsageError("provide the message as BODY, as - for stdin, or with --file")
    if file is not None:
        return file.read()
    if body == "-":
        return sys.stdin.buffer.read()
    return os.fsencode(body or "")


def _explain(response: Mapping[str, Any]) -> None:
    if response.get("duplicate"):
        note("a message with this idempotency key was published before; nothing was stored")
    elif "deliverAt" in response:
        note(f"scheduled; to cancel: mqgate scheduled cancel {response['id']}")
