"""The receive loop of `mqgate sub`.

A batch is acknowledged by the receive after it, so only once it is printed. Whatever ends the loop (Ctrl-C, SIGTERM,
a closed pipe, an error), what was printed is acknowledged and the rest handed back, if the gateway still answers.

    ended while printing      the printed part is acknowledged, the rest handed back
    ended during a receive    nobody knows whether it granted something: it is asked once more under its attempt id,
                              which acknowledges what was printed before and returns the same leases; they go back
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from mqgate.cli.batch import PrintedBatch, check, settle
from mqgate.cli.message_line import write
from mqgate.cli.output import note
from mqgate.client import Client, ClientError, GatewayError, GatewayUnreachable

__all__ = ["ReceiveOptions", "Subscription"]

_PAUSE = timedelta(seconds=1)
_NO_WAIT = timedelta(0)
_WHY_EMPTY = {
    "busy": "what is there is held by others, or waits for its next attempt",
    "paused": "the group is paused",
    "rate_limited": "the group's rate limit is reached",
    "in_flight_cap": "as many messages are leased as the group allows",
}
Show = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """What the user asked every receive to be."""

    most: int
    wait: timedelta
    visibility: float | str | None
    client_id: str | None
    is_acked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A receive whose answer is not in our hands yet."""

    attempt_id: str
    ack: list[str]


class Subscription:
    """The receives of one group, one after the other, and the batch it holds."""

    def __init__(self, client: Client, group: str, options: ReceiveOptions, show: Show) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._show = show
        self._asked: _Asked | None = None
        self._held = PrintedBatch({})
        self._state = "ok"

    def once(self) -> None:
        if not self._step(self._options.wait) and self._state == "ok":
            note("no message is there")
        self._settle()

    def forever(self) -> None:
        # The first receive does not wait: a paused group, say, would be told of only when the wait is over.
        wait = _NO_WAIT
        while True:
            try:
                if not self._step(wait) and not wait and sys.stderr.isatty():
                    note("waiting for messages; Ctrl-C ends it")
                wait = self._options.wait
            except GatewayError as error:
                if not error.retryable:
                    raise
                note(f"{error}; trying again")
                time.sleep((error.retry_after or _PAUSE).total_seconds())

    def finish(self) -> None:
        """Settle what can be settled while the loop is ending for another reason."""
        has_printed = self._held.printed > 0
        try:
            acked = self._recover()
            self._settle()
            check(acked)
        except ClientError as error:
            if has_printed:
                note(f"what was printed last may be delivered again: {error}")

    def _recover(self) -> list[dict[str, Any]]:
        if self._asked is None or not self._options.is_acked:
            return []
        answer = self._receive(self._asked, _NO_WAIT)
        self._held = PrintedBatch(answer)
        acked: list[dict[str, Any]] = answer.get("acked", [])
        return acked

    def _settle(self) -> None:
        if self._options.is_acked:
            settle(self._client, self._group, self._held.settlement())

    def _step(self, wait: timedelta) -> int:
        answer = self._ask(wait)
        self._held = PrintedBatch(answer)
        # Not earlier: an interrupt before this line must find either the question or the answer.
        self._asked = None
        self._tell(answer)
        for message in self._held.messages:
            write(self._show(message | _receipt(self._held)))
            self._held.printed += 1
        return self._held.printed

    def _ask(self, wait: timedelta) -> dict[str, Any]:
        ack = self._held.settlement().ack if self._options.is_acked else []
        self._asked = _Asked(attempt_id=uuid4().hex, ack=ack)
        try:
            return self._receive(self._asked, wait)
        except GatewayError:
            self._asked = None
            raise
        except GatewayUnreachable as error:
            if not error.is_outcome_unknown:
                self._asked = None
            raise

    def _receive(self, asked: _Asked, wait: timedelta) -> dict[str, Any]:
        options = self._options
        return self._client.receive(
            self._group,
            most=options.most,
            wait=wait,
            visibility=options.visibility,
            client_id=options.client_id,
            attempt_id=asked.attempt_id,
            ack=asked.ack,
        )

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
            note(f"nothing to receive now: {_WHY_EMPTY.get(state, state)}")
        self._state = state


def _receipt(batch: PrintedBatch) -> dict[str, Any]:
    return {"receipt": batch.lease["receipt"]} if batch.lease else {}
