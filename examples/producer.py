#!/usr/bin/env python3
# ruff: noqa: T201 - it talks to people
"""Publish a batch with nothing but Python's standard library, and be certain that it is stored once.

Every message has an idempotency key. Whatever goes wrong on the way (no answer, 503, 429), the same request is sent
again: what is stored already answers with the same id and `duplicate`.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any


def call(url: str, method: str, path: str, body: Any) -> tuple[int, Any]:
    """One request; the status and the JSON answered. Raises URLError when there is no answer."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), method=method)  # noqa: S310 - the user's own
    request.add_header("Content-Type", "application/json")
    if key := os.environ.get("MQGATE_KEY"):
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - the user's own
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def publish(url: str, topic: str, messages: list[dict[str, Any]], *, tries: int = 8) -> list[dict[str, Any]]:
    """Store every message once and return one result per message. The pause grows after each failure."""
    pause = 0.2
    for attempt in range(1, tries + 1):
        try:
            status, body = call(url, "POST", f"/v1/topics/{topic}/messages", {"messages": messages})
        except urllib.error.URLError as error:
            status, body = 0, {"detail": str(error.reason), "retryable": True}
        results: list[dict[str, Any]] = body.get("results", [])
        failed = [result for result in results if result.get("error", {}).get("retryable")]
        if results and not failed:
            return results
        if not results and not body.get("retryable"):
            sys.exit(f"refused: {body.get('detail')} ({body.get('code')})")
        print(f"attempt {attempt}: {status or 'no response'}, retry in {pause:.1f} s", file=sys.stderr)
        time.sleep(pause)
        pause = min(pause * 2, 10)
    sys.exit("failed: send the same keys again later, no message is stored twice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", default="example-orders")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument(
        "--run", default=str(int(time.time())), help="name of the run; the same name stores nothing twice"
    )
    arguments = parser.parse_args()
    call(arguments.url, "PUT", f"/v1/topics/{arguments.topic}", {})
    messages = [
        {"body": {"order": number}, "key": f"customer-{number % 3}", "idempotencyKey": f"{arguments.run}-{number}"}
        for number in range(arguments.count)
    ]
    for result in publish(arguments.url, arguments.topic, messages):
        where = f"{result['queue']}@{result['offset']}" if "queue" in result else result.get("error")
        print(result["status"], result.get("id"), where, "duplicate" if result.get("duplicate") else "")


if __name__ == "__main__":
    main()
