"""`mqgate sub`: print the messages of a group as they arrive."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from mqgate.cli.message_line import as_body, as_json_line, as_line
from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session
from mqgate.cli.subscription import ReceiveOptions, Subscription
from mqgate.cli.values import duration, name
from mqgate.cli.values import wait as wait_type

__all__ = ["sub"]

_LONG_POLL = timedelta(seconds=20)
_NO_WAIT = timedelta(0)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM (`timeout 60 mqgate sub`, a stopping container) end the loop as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command(
    epilog=examples(
        "mqgate sub billing",
        "mqgate sub billing --once --max 10",
        "mqgate sub billing --once --wait 30s",
        "mqgate sub caches --client-id web-1 --body",
        "mqgate --json sub billing | jq -r .body",
    )
)
@click.argument("group", type=name)
@click.option(
    "--max", "max_messages", type=int, default=32, show_default=True, help="Maximum number of messages per receive."
)
@click.option("--once", is_flag=True, help="Receive once, print, acknowledge and exit.")
@click.option(
    "--wait",
    type=wait_type,
    metavar="DURATION",
    help="Maximum wait of one receive for a message, at most 60s (default 20s; 0 with --once).",
)
@click.option("--visibility", type=duration, metavar="DURATION", help="Length of each lease.")
@click.option(
    "--client-id", help="Client id of this consumer; required for broadcast groups, and the same at every start."
)
@click.option(
    "--no-ack",
    is_flag=True,
    help="Do not acknowledge: messages are delivered again, and each delivery counts as an attempt.",
)
@click.option(
    "--body", "is_body", is_flag=True, help="Print only the message bodies, unchanged, each followed by a line end."
)
@with_session
def sub(
    session: Session,
    /,
    *,
    group: str,
    max_messages: int,
    once: bool,
    wait: timedelta | None,
    visibility: float | str | None,
    client_id: str | None,
    no_ack: bool,
    is_body: bool,
) -> None:
    """Print the messages of GROUP as they arrive, until Ctrl-C.

    The next receive acknowledges a batch after it was printed. On Ctrl-C (exit code 130), printed messages are
    acknowledged and the others are released. With --json, each message is one line with its receipt; in queue and
    broadcast mode, the receipt covers the whole batch.
    """
    if is_body and session.is_json:
        raise click.UsageError("give either --body or --json")
    if wait == _NO_WAIT and not once:
        raise click.UsageError("--wait 0 would poll without a pause: add --once or use a longer --wait")
    options = ReceiveOptions(
        max_messages=max_messages,
        wait=(_NO_WAIT if once else _LONG_POLL) if wait is None else wait,
        visibility=visibility,
        client_id=client_id,
        is_acked=not no_ack,
    )
    show = as_body if is_body else as_json_line if session.is_json else as_line
    with session.connect() as client, _terminable():
        subscription = Subscription(client, group, options, show)
        try:
            subscription.once() if once else subscription.forever()
        except BaseException:
            subscription.finish()
            raise
