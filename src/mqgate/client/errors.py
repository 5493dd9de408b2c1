"""Errors of the client, and the responses that they are made of.

ClientError
|-- GatewayError         the gateway refused the request
|-- GatewayUnreachable   the gateway did not respond
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

__all__ = ["ClientError", "GatewayError", "GatewayUnreachable", "Reply", "refusal", "retry_after", "unexpected"]

_STANDARD = frozenset({"type", "status", "code", "title", "detail", "retryable"})
_BUSY = frozenset({429, 502, 503, 504})


class ClientError(Exception):
    """A call failed."""


class GatewayError(ClientError):
    """The gateway refused the request. Programs use `code`; `detail` explains the problem to people.

    `members` contains the other members of the problem document (`field`, `limit`, `outcome`).
    """

    def __init__(
        self,
        *,
        status: int,
        code: str,
        title: str,
        detail: str,
        retryable: bool,
        members: Mapping[str, Any] | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.retryable = retryable
        self.members = dict(members or {})
        self.retry_after = retry_after


class GatewayUnreachable(ClientError):
    """The gateway did not respond. If `is_outcome_unknown`, it may have executed the request."""

    def __init__(self, detail: str, *, is_outcome_unknown: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.is_outcome_unknown = is_outcome_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response. Names of headers are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


def refusal(reply: Reply) -> GatewayError:
    """Return the error of a failed response, which may come from something other than a gateway."""
    problem = _problem(reply.content)
    unknown = f"{reply.url} returned {reply.status} without a problem document: check the URL of the gateway"
    return GatewayError(
        status=reply.status,
        code=str(problem.get("code", "unexpected_answer")),
        title=str(problem.get("title", "Unexpected response")),
        detail=str(problem.get("detail", unknown)),
        retryable=bool(problem.get("retryable", reply.status in _BUSY)),
        members={name: value for name, value in problem.items() if name not in _STANDARD},
        retry_after=retry_after(reply),
    )


def unexpected(reply: Reply, wanted: str) -> GatewayError:
    """Return the error of a successful response that no gateway sends."""
    return GatewayError(
        status=reply.status,
        code="unexpected_answer",
        title="Unexpected response",
        detail=f"{reply.url} did not return {wanted}: check the URL of the gateway",
        retryable=False,
    )


def retry_after(reply: Reply) -> timedelta | None:
    text = reply.headers.get("retry-after", "")
    return timedelta(seconds=int(text)) if text.isascii() and text.isdecimal() else None


def _problem(content: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) and "code" in problem else {}
