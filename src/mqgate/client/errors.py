"""Errors of the client.

ClientError
|-- GatewayError         the gateway refused the request
|-- GatewayUnreachable   the gateway did not respond
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx

__all__ = ["ClientError", "GatewayError", "GatewayUnreachable", "refusal", "unexpected"]

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


def refusal(response: httpx.Response) -> GatewayError:
    """Return the error of a failed response, which may come from something other than a gateway."""
    status = response.status_code
    problem = _problem(response)
    return GatewayError(
        status=status,
        code=str(problem.get("code", "unexpected_answer")),
        title=str(problem.get("title", response.reason_phrase)),
        detail=str(
            problem.get(
                "detail", f"{response.url} returned {status} without a problem document: check the URL of the gateway"
            )
        ),
        retryable=bool(problem.get("retryable", status in _BUSY)),
        members={name: value for name, value in problem.items() if name not in _STANDARD},
        retry_after=_retry_after(response),
    )


def unexpected(response: httpx.Response, wanted: str) -> GatewayError:
    """Return the error of a successful response that no gateway sends."""
    return GatewayError(
        status=response.status_code,
        code="unexpected_answer",
        title="Unexpected response",
        detail=f"{response.url} did not return {wanted}: check the URL of the gateway",
        retryable=False,
    )


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) and "code" in problem else {}


def _retry_after(response: httpx.Response) -> timedelta | None:
    text = response.headers.get("Retry-After", "")
    return timedelta(seconds=int(text)) if text.isascii() and text.isdecimal() else None
