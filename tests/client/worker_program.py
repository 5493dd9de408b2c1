"""A worker as a process: it appends a line to a file when a handler begins and when it ends."""

import sys
import threading
from pathlib import Path

from mqgate.client import Message, Worker

url, group, log, duration, visibility = sys.argv[1:]
worker = Worker(url, concurrency=4, prefetch=16, visibility=float(visibility), grace=60)
writing = threading.Lock()


def write(what: str, message: Message) -> None:
    with writing, Path(log).open("a") as file:
        file.write(f"{what} {message.body.decode()} {message.delivery}\n")


@worker.handler(group)
def handle(message: Message) -> None:
    write("begin", message)
    threading.Event().wait(float(duration))
    write("end", message)


worker.run()
