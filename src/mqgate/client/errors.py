"""What can go wrong between an application and its gateway.

ClientError
|-- GatewayError         the gateway answered, and refused
|-- GatewayUnreachable   there was no answer
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx

__all__ = ["ClientError", "GatewayError", "GatewayUnreachable", "refusal", "unexpected"]

_STANDARD = frozenset({"type", "status", "code", "title", "detail", "retryable"})
_BUSY = frozenset({429, 502, 503, 504})


class ClientError(Exception):
    """A call did not do what was asked."""


class GatewayError(ClientError):
    """The gateway refused: its problem document, with `code` to decide on and `detail` for people.

    `members` holds what the document says beyond that (`field`, `limit`, `outcome`).
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
    """No answer came. `is_outcome_unknown`: the request may have been carried out all the same."""

    def __init__(self, detail: str, *, is_outcome_unknown: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.is_outcome_unknown = is_outcome_unknown


def refusal(response: httpx.Response) -> GatewayError:
    """The error that an answer stands for, also when something other than a gateway wrote it."""
    status = response.status_code
    problem = _problem(response)
    return GatewayError(
        status=status,
        code=str(problem.get("code", "unexpected_answer")),
        title=str(problem.get("title", response.reason_phrase)),
        detail=str(problem.get("detail", f"{response.url} answered {status}: is a gateway there?")),
        retryable=bool(problem.get("retryable", status in _BUSY)),
        members={name: value for name, value in problem.items() if name not in _STANDARD},
        retry_after=_retry_after(response),
    )


def unexpected(response: httpx.Response, wanted: str) -> GatewayError:
    """The error that a success stands for which no gateway would have answered."""
    return GatewayError(
        status=response.status_code,
        code="unexpected_answer",
        title="The answer is not a gateway's",
        detail=f"{response.url} answered something other than {wanted}: is a gateway there?",
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
