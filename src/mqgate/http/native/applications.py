"""Handlers for applications: apply, decide, withdraw, retry, and take an approved key."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from mqgate.control.access.model import Principal
from mqgate.control.approvals.service import Approvals
from mqgate.core.application import Application, ApplicationKind, ApplicationState
from mqgate.core.errors import InvalidValue
from mqgate.core.times import format_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.native.registry import NewKeyOut, check_limit
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe

__all__ = ["ApplicationsApi"]


class ApplicationIn(Struct, rename="camel", forbid_unknown_fields=True):
    kind: ApplicationKind
    topic: str | None = None
    producer: str | None = None
    group: str | None = None
    team: str | None = None
    settings: dict[str, Any] | None = None
    reason: str = ""


class DecisionIn(Struct, rename="camel", forbid_unknown_fields=True):
    reason: str | None = None


class ApplicationOut(Struct, rename="camel"):
    id: str
    kind: str
    topic: str | None
    producer: str | None
    group: str | None
    team: str | None
    settings: dict[str, Any]
    reason: str
    applicant: str
    state: str
    created_at: str
    decided_by: str | None
    decided_at: str | None
    decision_reason: str | None
    attempts: int
    error: str | None
    applied_at: str | None
    key_taken: bool


class ApplicationsOut(Struct):
    items: list[ApplicationOut]
    next: str | None


class ApplicationQuery(Struct, rename="camel", forbid_unknown_fields=True):
    state: ApplicationState | None = None
    mine: bool = False
    limit: int = 100
    cursor: str | None = None


_application_in = msgspec.json.Decoder(ApplicationIn)
_decision_in = msgspec.json.Decoder(DecisionIn)
_Decide = Callable[[Principal, str, str | None], Awaitable[Application]]
_decision = {
    "request_type": DecisionIn,
    "is_body_optional": True,
    "responses": {200: ApplicationOut},
    "errors": (404, 409, 507),
}


class ApplicationsApi:
    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    @describe(
        "createApplication",
        "approvals",
        request_type=ApplicationIn,
        responses={201: ApplicationOut},
        errors=(404, 409, 507),
    )
    async def create(self, request: Request) -> Response:
        """Apply for an entry, a key, or an operation on a group."""
        given = decode(request.body, _application_in)
        named = {"topic": given.topic, "producer": given.producer, "group": given.group}
        entries = [(entry, name) for entry, name in named.items() if name is not None]
        if len(entries) != 1:
            raise InvalidValue("Provide exactly one of topic, producer and group.", field="topic")
        ((entry, name),) = entries
        application = await self._approvals.submit(
            request.principal,
            kind=given.kind,
            entry=entry,
            name=name,
            team=given.team,
            settings=msgspec.json.encode(given.settings or {}),
            reason=given.reason,
        )
        return reply(201, _application_out(application))

    @describe("listApplications", "approvals", query=ApplicationQuery, responses={200: ApplicationsOut})
    async def list(self, request: Request) -> Response:
        """List applications, the newest first."""
        requested = query(request, ApplicationQuery)
        found, next_cursor = await self._approvals.list(
            state=requested.state,
            applicant=request.principal.name if requested.mine else None,
            limit=check_limit(requested.limit),
            after=requested.cursor,
        )
        return reply(200, ApplicationsOut([_application_out(application) for application in found], next_cursor))

    @describe("getApplication", "approvals", responses={200: ApplicationOut}, errors=(404,))
    async def get(self, request: Request) -> Response:
        """Show an application."""
        return reply(200, _application_out(await self._approvals.get(request.path("id"))))

    @describe("approveApplication", "approvals", **_decision)
    async def approve(self, request: Request) -> Response:
        """Approve an application; it is applied in the background."""
        return await _decide(request, self._approvals.approve)

    @describe("declineApplication", "approvals", **_decision)
    async def decline(self, request: Request) -> Response:
        """Decline an application, with a reason."""
        return await _decide(request, self._approvals.decline)

    @describe("withdrawApplication", "approvals", **_decision)
    async def withdraw(self, request: Request) -> Response:
        """Withdraw an application of the caller."""
        return await _decide(request, self._approvals.withdraw)

    @describe("retryApplication", "approvals", **_decision)
    async def retry(self, request: Request) -> Response:
        """Apply a failed application again."""
        return await _decide(request, self._approvals.retry)

    @describe("takeApplicationKey", "approvals", responses={201: NewKeyOut}, errors=(404, 409, 507))
    async def take_key(self, request: Request) -> Response:
        """Create the key of an applied application; its text is returned only once, to the applicant."""
        key_id, text = await self._approvals.take_key(request.principal, request.path("id"))
        return reply(201, NewKeyOut(key_id, text), [(b"cache-control", b"no-store")])


async def _decide(request: Request, decide: _Decide) -> Response:
    given = decode(request.body, _decision_in) if request.body else DecisionIn()
    return reply(200, _application_out(await decide(request.principal, request.path("id"), given.reason)))


def _application_out(application: Application) -> ApplicationOut:
    names = {application.entry: application.name}
    return ApplicationOut(
        id=application.id,
        kind=application.kind,
        topic=names.get("topic"),
        producer=names.get("producer"),
        group=names.get("group"),
        team=application.team,
        settings=msgspec.json.decode(application.settings),
        reason=application.reason,
        applicant=application.applicant,
        state=application.state,
        created_at=format_instant(application.created_at),
        decided_by=application.decided_by,
        decided_at=maybe_instant(application.decided_at),
        decision_reason=application.decision_reason,
        attempts=application.attempts,
        error=application.error,
        applied_at=maybe_instant(application.applied_at),
        key_taken=application.is_key_taken,
    )
