"""The receive loop of `mqgate sub`.

The next receive acknowledges a batch, after the batch was printed. When the loop ends (Ctrl-C, SIGTERM, a closed
pipe, an error), printed messages are acknowledged and the others released, if the gateway still responds.

    ended while printing      acknowledge the printed messages, release the others
    ended during a receive    the result is unknown: repeat the receive with its attempt id, which acknowledges the
                              messages printed before and returns the same leases, and release those leases
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
from mqgate.client.types import Outcome, Received

__all__ = ["ReceiveOptions", "Subscription"]

_PAUSE = timedelta(seconds=1)
_NO_WAIT = timedelta(0)
_WHY_EMPTY = {
    "busy": "the available messages are leased to other clients, or wait for their next attempt",
    "paused": "the group is paused",
    "rate_limited": "the group's rate limit is reached",
    "in_flight_cap": "the group has reached its maximum number of leased messages",
}
Show = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """Parameters of every receive."""

    max_messages: int
    wait: timedelta
    visibility: float | str | None
    client_id: str | None
    is_acked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingReceive:
    """A receive whose response has not arrived yet."""

    attempt_id: str
    ack: list[str]


class Subscription:
    """The consecutive receives of one group, and the batch that is not settled yet."""

    def __init__(self, client: Client, group: str, options: ReceiveOptions, show: Show) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._show = show
        self._pending: _PendingReceive | None = None
        self._held = PrintedBatch({})
        self._state = "ok"

    def once(self) -> None:
        if not self._step(self._options.wait) and self._state == "ok":
            note("no message is available")
        self._settle()

    def forever(self) -> None:
        # The first receive does not wait, so that a paused group, for example, is reported at once.
        wait = _NO_WAIT
        while True:
            try:
                if not self._step(wait) and not wait and sys.stderr.isatty():
                    note("waiting for messages; stop with Ctrl-C")
                wait = self._options.wait
            except GatewayError as error:
                if not error.retryable:
                    raise
                note(f"{error}; retrying")
                time.sleep((error.retry_after or _PAUSE).total_seconds())

    def finish(self) -> None:
        """Settle the current batch after the loop ended early."""
        has_printed = self._held.printed > 0
        try:
            acked = self._recover()
            self._settle()
            check(acked)
        except ClientError as error:
            if has_printed:
                note(f"the messages printed last may be delivered again: {error}")

    def _recover(self) -> list[Outcome]:
        if self._pending is None or not self._options.is_acked:
            return []
        response = self._receive(self._pending, _NO_WAIT)
        self._held = PrintedBatch(response)
        return response.get("acked", [])

    def _settle(self) -> None:
        if self._options.is_acked:
            settle(self._client, self._group, self._held.settlement())

    def _step(self, wait: timedelta) -> int:
        response = self._request(wait)
        self._held = PrintedBatch(response)
        # Not earlier: an interrupt before this line must find either the pending receive or its response.
        self._pending = None
        self._report(response)
        for message in self._held.messages:
            write(self._show(message | _receipt(self._held)))
            self._held.printed += 1
        return self._held.printed

    def _request(self, wait: timedelta) -> Received:
        ack = self._held.settlement().ack if self._options.is_acked else []
        self._pending = _PendingReceive(attempt_id=uuid4().hex, ack=ack)
        try:
            return self._receive(self._pending, wait)
        except GatewayError:
            self._pending = None
            raise
        except GatewayUnreachable as error:
            if not error.is_outcome_unknown:
                self._pending = None
            raise

    def _receive(self, pending: _PendingReceive, wait: timedelta) -> Received:
        options = self._options
        return self._client.receive(
            self._group,
            max=options.max_messages,
            wait=wait,
            visibility=options.visibility,
            client_id=options.client_id,
            attempt_id=pending.attempt_id,
            ack=pending.ack,
        )

    def _report(self, response: Mapping[str, Any]) -> None:
        try:
            check(response.get("acked", []))
        except GatewayError as error:
            note(str(error))
        if response.get("registered"):
            note("this client was not registered before; the gateway has registered it")
        for loss in ("expired", "rewound"):
            if response.get(loss):
                note(f"{loss}: {response[loss]} messages")
        state = str(response.get("state", "ok"))
        if state not in {"ok", self._state}:
            note(f"nothing to receive now: {_WHY_EMPTY.get(state, state)}")
        self._state = state


def _receipt(batch: PrintedBatch) -> dict[str, Any]:
    return {"receipt": batch.lease["receipt"]} if batch.lease else {}
