#!/usr/bin/env python3
# ruff: noqa: T201 - an example prints
"""A worker: a function that is called for every message of a group.

It acknowledges messages when the function has returned, repeats them when it has raised, and extends their leases
meanwhile. SIGTERM and Ctrl-C end it after the messages that are being handled.
"""

import argparse
import os
import sys

from mqgate.client import Client, EventKind, Message, Worker, WorkerEvent

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", default="http://127.0.0.1:8080")
parser.add_argument("--topic", default="example-orders")
parser.add_argument("--group", default="example-billing")
parser.add_argument("--until-empty", action="store_true", help="exit when there are no messages")
given = parser.parse_args()
key = os.environ.get("MQGATE_KEY")

with Client(given.url, key) as client:
    client.topics.put(given.topic, {})
    client.groups.put(given.group, {"topic": given.topic, "visibility": "1m", "maxAttempts": 5})
    left = client.lag(given.group)["lag"] if given.until_empty else None


def count(event: WorkerEvent) -> None:
    """Stop after the messages that were there at the start."""
    global left  # noqa: PLW0603 - a script
    if left is not None and event.kind is EventKind.HANDLED:
        left -= 1
        if not left:
            worker.stop()


worker = Worker(given.url, key, on_event=count)


@worker.handler(given.group)
async def handle(message: Message) -> None:
    """Process a message. A message may be delivered twice, so the work must be idempotent."""
    print(message.id, message.body.decode(errors="replace"))


if left != 0:
    worker.run()
print("done", file=sys.stderr)
