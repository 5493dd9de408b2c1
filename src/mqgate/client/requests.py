"""One call of the API as values: what is sent and what came back. Nothing here does I/O."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from mqgate.client.errors import Reply, unexpected

__all__ = [
    "Call",
    "Duration",
    "Instant",
    "Json",
    "create",
    "delete",
    "get",
    "given",
    "path",
    "post",
    "put",
    "seconds",
    "wire",
]

Json = dict[str, Any]
Duration = timedelta | str | float
Instant = datetime | str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, independent of the gateway that it is sent to.

    `wait` is the time that the gateway may take in addition to the timeout. A call `is_repeatable` if executing it
    twice has the effect of executing it once; only such a call is sent again after a lost response.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    is_repeatable: bool = True
    is_anonymous: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: wire(value) for name, value in self.query.items() if value is not None}


def get(*segments: str, **query: Any) -> Call:
    return Call(method="GET", path=path(*segments), query=query)


def delete(*segments: str, is_repeatable: bool = False) -> Call:
    # A second DELETE returns 404, which would hide that the first one succeeded.
    return Call(method="DELETE", path=path(*segments), is_repeatable=is_repeatable)


def put(body: Mapping[str, Any], *segments: str, method: str = "PUT") -> Call:
    return _with_json(method, segments, body)


def create(body: Mapping[str, Any], *segments: str) -> Call:
    """Return a PUT that an existing entry refuses. Repeated, it would hide that the first one succeeded."""
    call = put(body, *segments)
    return replace(call, headers={**call.headers, "If-None-Match": "*"}, is_repeatable=False)


def post(body: Mapping[str, Any], *segments: str, **options: Any) -> Call:
    return _with_json("POST", segments, body, **options)


def _with_json(method: str, segments: Sequence[str], body: Mapping[str, Any], **options: Any) -> Call:
    headers = {"Content-Type": "application/json"}
    return Call(method=method, path=path(*segments), content=encode(body), headers=headers, **options)


def path(*segments: str) -> str:
    """Return a path under `/v1`, with every segment encoded so that it remains one segment."""
    if not all(segments):
        raise ValueError("a name must not be empty")
    # An unencoded ".." would be resolved before it is sent.
    return "/v1/" + "/".join(quote(segment, safe="").replace(".", "%2E") for segment in segments)


def given(**members: Any) -> Json:
    """Return the members that are not None, because null has a meaning of its own in the API."""
    return {name: value for name, value in members.items() if value is not None}


def seconds(wait: float | timedelta) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


def encode(body: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(body).encode()


def decode(reply: Reply) -> Json:
    """Return the JSON object of a response, or {} if it is empty. Raise GatewayError for anything else."""
    if not reply.content:
        return {}
    try:
        body = json.loads(reply.content)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    raise unexpected(reply, "a JSON object")


def wire(value: Any) -> Any:
    """Return a value in its API form, if JSON has no type for it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


# Made once: json.dumps with arguments makes one per call.
_ENCODER = json.JSONEncoder(default=wire, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
