"""What happened, one line for each request and each fault, in the order in which it ended.

Append-only and compact: a JSON array a line, its first element says what it is. Instants are seconds of this machine's
clock; all servers are on the same machine, so their instants compare with ours.
"""

import base64
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["Event", "Fault", "Group", "History", "Lease", "Message", "Publish", "Receive", "Sent", "Settle", "lease_of"]


class Group(msgspec.Struct, array_like=True, frozen=True, tag="group"):
    """Settings of a group; `visibility` in seconds."""

    name: str
    mode: str
    visibility: float
    is_ordered: bool = False


class Sent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message of a publish. `outcome`: stored, refused (certainly not stored) or unknown."""

    body: str
    key: str | None
    outcome: str
    id: str = ""
    queue: str = ""
    offset: int = -1


class Publish(msgspec.Struct, array_like=True, frozen=True, tag="publish"):
    began: float
    ended: float
    sent: list[Sent]
    error: str = ""


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One delivery."""

    queue: str
    offset: int
    id: str
    body: str
    key: str | None
    epoch: int


class Receive(msgspec.Struct, array_like=True, frozen=True, tag="receive"):
    """A complete response, or the reason why there was none."""

    group: str
    began: float
    ended: float
    messages: list[Message] = []
    leased_until: float = 0.0
    incarnation: str = ""
    rewound: int = 0
    error: str = ""


class Settled(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One receipt of a settlement; `unknown` if the response was lost."""

    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str
    outcome: str


class Settle(msgspec.Struct, array_like=True, frozen=True, tag="settle"):
    """Acks or nacks, including those of a receive."""

    group: str
    verb: str
    began: float
    ended: float
    settled: list[Settled]
    error: str = ""


class Fault(msgspec.Struct, array_like=True, frozen=True, tag="fault"):
    """A fault of a server that started at `began`; at `ended` the server was restarted or resumed."""

    kind: str
    target: str
    began: float
    ended: float


Event = Group | Publish | Receive | Settle | Fault
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class History:
    """A history that is written to a file event by event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")

    def add(self, event: Event) -> None:
        self._file.write(_encoder.encode(event) + b"\n")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Event]:
    with path.open("rb") as lines:
        yield from map(_decoder.decode, lines)


class Lease(NamedTuple):
    """Decode a receipt. Clients must not, but the checker needs the epoch, which is the order of the grants."""

    queue: str
    start: int
    next: int
    epoch: int
    incarnation: str


_KEY_AND_TAG = 18


def lease_of(receipt: str) -> Lease:
    token, _, rest = receipt.partition(".")
    offset = rest.partition(".")[0]
    lease = _lease(token)
    return lease._replace(start=int(offset), next=int(offset) + 1) if offset else lease


@lru_cache(maxsize=10_000)
def _lease(token: str) -> Lease:
    text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[_KEY_AND_TAG:].decode()
    _, _, _, queue, start, after, epoch, incarnation = text.split("\x1f")[:8]
    return Lease(queue, int(start), int(after), int(epoch), incarnation)
