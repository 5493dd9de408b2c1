"""`mqgate sub`: print the messages of a group as they come.

A batch is acknowledged by the receive after it, so only once it is printed. Whatever ends the loop (Ctrl-C,
SIGTERM, a closed pipe, an error), what was printed is acknowledged and the rest handed back, if the gateway
still answers.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from mqgate.cli.batch import Batch, check, settle
from mqgate.cli.message_line import as_body, as_json_line, as_line, write
from mqgate.cli.output import examples, note
from mqgate.cli.session import Session, with_session
from mqgate.cli.values import duration, name
from mqgate.client import Client, ClientError, GatewayError

__all__ = ["sub"]

_LONG_POLL = 20.0
_PAUSE = 1.0
Show = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user asked every receive to be."""

    most: int
    wait: timedelta
    visibility: float | str | None
    client_id: str | None
    is_acked: bool


class Subscription:
    """The receive loop of one group, and the batch it holds."""

    def __init__(self, client: Client, group: str, wishes: Wishes, show: Show) -> None:
        self._client = client
        self._group = group
        self._wishes = wishes
        self._show = show
        self._held = Batch({})
        self._state = "ok"

    def once(self) -> None:
        self._step()
        self._settle()

    def forever(self) -> None:
        while True:
            started = time.monotonic()
            try:
                is_empty = not self._step()
            except GatewayError as error:
                if not error.retryable:
                    raise
                note(f"{error}; trying again")
                time.sleep((error.retry_after or timedelta(seconds=_PAUSE)).total_seconds())
                continue
            if is_empty:
                # A gateway may answer an empty poll at once; asking again at once would be a hot loop.
                time.sleep(max(0.0, started + _PAUSE - time.monotonic()))

    def finish(self) -> None:
        """Settle what can be settled while the loop is ending for another reason."""
        try:
            self._settle()
        except ClientError as error:
            note(f"what was printed last may be delivered again: {error}")

    def _settle(self) -> None:
        if self._wishes.is_acked:
            settle(self._client, self._group, self._held.settlement())

    def _step(self) -> int:
        wishes = self._wishes
        ack = self._held.settlement().ack if wishes.is_acked else []
        answer = self._client.receive(
            self._group,
            most=wishes.most,
            wait=wishes.wait,
            visibility=wishes.visibility,
            client_id=wishes.client_id,
            ack=ack,
        )
        self._held = Batch(answer)
        self._tell(answer)
        for message in self._held.messages:
            write(self._show(message | _receipt(self._held)))
            self._held.printed += 1
        return self._held.printed

    def _tell(self, answer: Mapping[str, Any]) -> None:
        try:
            check(answer.get("acked", []))
        except GatewayError as error:
            note(str(error))
        if answer.get("registered"):
            note("the gateway did not know this client; it is registered now")
        for loss in ("expired", "rewound"):
            if answer.get(loss):
                note(f"{loss}: {answer[loss]} messages")
        state = str(answer.get("state", "ok"))
        if state not in {"ok", self._state}:
            note(f"nothing to receive now: {state}")
        self._state = state


def _receipt(batch: Batch) -> dict[str, Any]:
    return {"receipt": batch.lease["receipt"]} if batch.lease else {}


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM (`timeout 60 mqgate sub`, a stopping container) end the loop the way Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command(
    epilog=examples(
        "mqgate sub billing",
        "mqgate sub billing --once --max 10",
        "mqgate sub caches --client-id web-1 --body",
        "mqgate --json sub billing | jq -r .body",
    )
)
@click.argument("group", type=name)
@click.option("--max", "most", type=int, default=32, show_default=True, help="Most messages of one receive.")
@click.option("--once", is_flag=True, help="Receive once, print, acknowledge, end.")
@click.option("--wait", type=click.FloatRange(0, 60), help="Seconds to wait for a message: 20, with --once 0.")
@click.option("--visibility", type=duration, metavar="DURATION", help="How long each lease lasts.")
@click.option("--client-id", help="This consumer's name; a broadcast group needs it, and always the same.")
@click.option("--no-ack", is_flag=True, help="Only look: the messages come again, and each time counts as an attempt.")
@click.option("--body", "is_body", is_flag=True, help="Print only the bodies, byte for byte, a line end after each.")
@with_session
def sub(
    session: Session,
    /,
    *,
    group: str,
    most: int,
    once: bool,
    wait: float | None,
    visibility: float | str | None,
    client_id: str | None,
    no_ack: bool,
    is_body: bool,
) -> None:
    """Print the messages of GROUP as they come, until Ctrl-C.

    A batch is acknowledged once it is printed. On Ctrl-C (exit code 130) what was printed is acknowledged and
    the rest handed back. With --json each message is one line, in queue and broadcast mode with the receipt
    of its batch.
    """
    if is_body and session.is_json:
        raise click.UsageError("give either --body or --json")
    if wait is None:
        wait = 0.0 if once else _LONG_POLL
    wishes = Wishes(
        most=most,
        wait=timedelta(seconds=wait),
        visibility=visibility,
        client_id=client_id,
        is_acked=not no_ack,
    )
    show = as_body if is_body else as_json_line if session.is_json else as_line
    with session.connect() as client, _terminable():
        subscription = Subscription(client, group, wishes, show)
        try:
            subscription.once() if once else subscription.forever()
        except BaseException:
            subscription.finish()
            raise
