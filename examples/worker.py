#!/usr/bin/env python3
# ruff: noqa: T201 - an example prints
"""The loop of a worker: one request per iteration.

Each receive waits for messages and acknowledges those of the previous iteration. It has an attempt id: after a lost
response, the same id returns the same messages. SIGTERM and Ctrl-C end the loop after the current iteration, with all
receipts settled.
"""

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from mqgate.client import Client, GatewayError, GatewayUnreachable, body_of

_DONE = {"applied", "duplicate", "late_applied"}


class Worker:
    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._finished: list[str] = []
        self.is_stopping = False

    def run(self, wait: timedelta, *, is_until_empty: bool) -> int:
        """Work until stopped, and return the number of completed messages."""
        count = 0
        while not self.is_stopping:
            messages = self._receive(wait)
            if not messages and is_until_empty:
                break
            for message in messages:
                count += self._try(message)
        if self._finished:
            self._client.ack_all(self._group, self._finished)
        return count

    def _receive(self, wait: timedelta) -> list[dict[str, Any]]:
        attempt = uuid4().hex
        pause = 0.2
        while True:
            try:
                response = self._client.receive(self._group, max=10, wait=wait, attempt_id=attempt, ack=self._finished)
                break
            except (GatewayUnreachable, GatewayError) as error:
                if self.is_stopping or not getattr(error, "retryable", True):
                    raise
                print(f"{error}; retry in {pause:.1f} s", file=sys.stderr)
                time.sleep(pause)
                pause = min(pause * 2, 10)
        for outcome in response["acked"]:
            if outcome["outcome"] not in _DONE:
                print(f"ack refused: {outcome['outcome']}", file=sys.stderr)
        self._finished = []
        return list(response["messages"])

    def _try(self, message: dict[str, Any]) -> int:
        try:
            handle(message["id"], body_of(message))
        except Exception as error:  # noqa: BLE001 - the message is delivered again after any error
            self._client.nack(self._group, message["receipt"], reason=str(error)[:1000])
            return 0
        self._finished.append(message["receipt"])
        return 1


def handle(message_id: str, body: bytes) -> None:
    """Process a message. A message may be delivered twice, so the work must be idempotent."""
    print(message_id, body.decode(errors="replace"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", default="example-orders")
    parser.add_argument("--group", default="example-billing")
    parser.add_argument("--wait", type=float, default=20, help="seconds to wait for messages")
    parser.add_argument("--until-empty", action="store_true", help="exit when there are no messages")
    given = parser.parse_args()
    with Client(given.url, os.environ.get("MQGATE_KEY")) as client:
        client.topics.put(given.topic, {})
        client.groups.put(given.group, {"topic": given.topic, "visibility": "1m", "maxAttempts": 5})
        worker = Worker(client, given.group)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(worker, "is_stopping", True))
        wait = timedelta(seconds=0 if given.until_empty else given.wait)
        count = worker.run(wait, is_until_empty=given.until_empty)
    print(f"{count} done", file=sys.stderr)


if __name__ == "__main__":
    main()
