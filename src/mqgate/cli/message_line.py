"""A received message as one line of text, as JSON, or as its body."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from mqgate.cli.output import plain
from mqgate.client import body_of

__all__ = ["as_body", "as_json_line", "as_line", "write"]


def as_line(message: Mapping[str, Any]) -> bytes:
    labels = [f"{label}={message[label]}" for label in ("key", "tag") if message.get(label)]
    labels += [f"{label}={value}" for label, value in (message.get("properties") or {}).items()]
    if message.get("delivery", 1) > 1:
        labels.append(f"delivery={message['delivery']}")
    body = message["body"] if "body" in message else f"base64:{message['bodyBase64']}"
    parts = [f"{message['queue']}@{message['offset']}", str(message["storedAt"]), *labels, str(body)]
    return plain("  ".join(parts)).encode() + b"\n"


def as_json_line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def as_body(message: Mapping[str, Any]) -> bytes:
    return body_of(message) + b"\n"


def write(line: bytes) -> None:
    """Write the whole line to stdout, or raise OSError."""
    # With PYTHONUNBUFFERED, stdout is unbuffered and may write only a part of the bytes.
    rest = memoryview(line)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()
