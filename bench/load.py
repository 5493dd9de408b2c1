"""A load generator process with keep-alive connections, which parses only the necessary part of responses.

    python bench/load.py URL SCENARIO CONNECTIONS SECONDS ['{"group": ...}']

Prints one JSON object: requests, messages, empty responses, errors, seconds, its own CPU seconds, the latencies in ms
of responses with messages, and the delivered offset ranges, so that duplicates can be counted. Options of every
scenario: `rate`, the requests per second of all connections; `pause`, the seconds after an empty response.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import uvloop

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RECEIPT = re.compile(rb'"receipt":"([^"]+)"')
_PLACE = re.compile(rb'"queue":"([^"]+)","offset":(\d+)')
BODY = "x" * 300


class Connection(asyncio.Protocol):
    """A connection that sends a request, waits for the complete response, and sends the next."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.buffer = b""
        self.last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        if self.run.is_over:
            self.transport.close()
            return
        self.began = time.perf_counter()
        self.transport.write(self.run.request(self.last))  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end]
        length = _LENGTH.search(head)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self.buffer) < size:
            return
        self.last = self.buffer[end + 4 : size]
        self.buffer = self.buffer[size:]
        self.run.answered(head[9:12], self.last, time.perf_counter() - self.began)
        if delay := self.run.delay(self.began):
            asyncio.get_running_loop().call_later(delay, self.send)
        else:
            self.send()


class Run:
    def __init__(
        self,
        host: str,
        make: Callable[[bytes], tuple[str, bytes]],
        count: Callable[[bytes], int],
        *,
        interval: float,
        pause: float,
    ) -> None:
        self.host = host
        self.make = make
        self.count = count
        self.interval = interval
        self.pause = pause
        self.is_empty = False
        self.requests = self.messages = self.empty = self.errors = 0
        self.latencies: list[float] = []
        self.delivered: list[tuple[str, int, int]] = []
        self.is_over = False

    def request(self, last: bytes) -> bytes:
        path, body = self.make(last)
        return (
            f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body

    def delay(self, began: float) -> float:
        """Return the seconds until a connection sends again, whose last request was sent at `began`."""
        if self.interval:
            return max(began + self.interval - time.perf_counter(), 0.0)
        return self.pause if self.is_empty else 0.0

    def answered(self, status: bytes, body: bytes, seconds: float) -> None:
        self.requests += 1
        self.is_empty = False
        if status[:1] != b"2":
            self.errors += 1
        elif count := self.count(body):
            self.messages += count
            self.latencies.append(seconds)
            self.note(body)
        else:
            self.empty += 1
            self.is_empty = True

    def note(self, body: bytes) -> None:
        """Record the received messages, with consecutive offsets of one response as one range."""
        queue, start, end = b"", 0, 0
        for name, text in _PLACE.findall(body):
            offset = int(text)
            if name == queue and offset == end:
                end += 1
                continue
            if end > start:
                self.delivered.append((queue.decode(), start, end))
            queue, start, end = name, offset, offset + 1
        if end > start:
            self.delivered.append((queue.decode(), start, end))


def scenario(name: str, options: dict[str, str]) -> tuple[Callable[[bytes], tuple[str, bytes]], Callable[[bytes], int]]:
    topic, group = options.get("topic", "bench"), options.get("group", "bench")
    single = json.dumps({"body": BODY}).encode()
    batch = json.dumps({"messages": [{"body": BODY}] * 100}).encode()
    asked = {"max": int(options.get("max", "32")), "wait": int(options.get("wait", "0"))}

    def receive(last: bytes) -> tuple[str, bytes]:
        receipts = [receipt.decode() for receipt in _RECEIPT.findall(last)]
        return f"/v1/groups/{group}/receive", json.dumps({**asked, "ack": receipts}).encode()

    def delivered(body: bytes) -> int:
        return body.count(b'"storedAt"')

    def one(_: bytes) -> int:
        return 1

    def hundred(_: bytes) -> int:
        return 100

    return {
        "noop": (lambda _: ("/v1/topics/noop/messages", single), one),
        "single": (lambda _: (f"/v1/topics/{topic}/messages", single), one),
        "batch": (lambda _: (f"/v1/topics/{topic}/messages", batch), hundred),
        "receive": (receive, delivered),
    }[name]


async def main(url: str, name: str, connections: int, seconds: float, options: dict[str, str]) -> None:
    parts = urlsplit(url)
    make, count = scenario(name, options)
    rate = float(options.get("rate", "0"))
    pause = float(options.get("pause", "0"))
    run = Run(parts.netloc, make, count, interval=connections / rate if rate else 0.0, pause=pause)
    loop = asyncio.get_running_loop()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(run), parts.hostname, parts.port)
    await asyncio.sleep(seconds)
    passed, used = time.perf_counter() - began, time.process_time() - cpu
    run.is_over = True
    found = {"requests": run.requests, "messages": run.messages, "empty": run.empty, "errors": run.errors}
    found |= {"seconds": passed, "cpu": used, "delivered": run.delivered}
    print(json.dumps(found | {"latencies": [round(each * 1000, 3) for each in run.latencies]}))


if __name__ == "__main__":
    uvloop.run(
        main(
            sys.argv[1],
            sys.argv[2],
            int(sys.argv[3]),
            float(sys.argv[4]),
            json.loads(sys.argv[5]) if len(sys.argv) > 5 else {},
        )
    )
