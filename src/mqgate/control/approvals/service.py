"""Apply, decide, withdraw and retry; hand out keys."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from mqgate.control.access.keys import ApiKeys, KeySpec
from mqgate.control.access.model import Principal
from mqgate.control.approvals.model import next_state
from mqgate.control.approvals.requests import CREATING, check, entry_of
from mqgate.control.registry.service import Registry
from mqgate.core.application import Application, ApplicationKind, ApplicationState
from mqgate.core.errors import (
    ApplicationChanged,
    ApplicationNotFound,
    Forbidden,
    InvalidValue,
    KeyAlreadyTaken,
    MqgateError,
)
from mqgate.core.names import check_name
from mqgate.ports.application_store import ApplicationStore
from mqgate.ports.registry_store import AuditEntry
from mqgate.settings import ApprovalSettings

__all__ = ["Approvals"]

_MAX_REASON = 1_000
_POLICY = "policy"


class Approvals:
    """`approved` is called after an approval, so that it is applied soon."""

    def __init__(
        self,
        store: ApplicationStore,
        registry: Registry,
        keys: ApiKeys,
        settings: ApprovalSettings,
        clock: Callable[[], datetime],
        approved: Callable[[], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._approved = approved

    async def submit(
        self,
        caller: Principal,
        *,
        kind: ApplicationKind,
        entry: str,
        name: str,
        team: str | None,
        settings: bytes,
        reason: str,
    ) -> Application:
        """Store a new application, and approve it if the policy says so."""
        check_name(name, entry)
        check(kind, entry, settings)
        _check_reason(reason)
        now = self._clock()
        application = Application(
            id=f"a{secrets.token_hex(6)}",
            kind=kind,
            entry=entry,
            name=name,
            team=await self._team(caller, kind, entry, name, team),
            settings=settings.decode(),
            reason=reason,
            applicant=caller.name,
            created_at=now,
        )
        if self._is_automatic(application):
            application = replace(
                application, state=ApplicationState.APPROVED, decided_by=_POLICY, decided_at=now, next_attempt_at=now
            )
        await self._store.add(application, self._audit(caller.name, "apply", application, reason))
        if application.state is ApplicationState.APPROVED:
            self._approved()
        return application

    async def _team(
        self, caller: Principal, kind: ApplicationKind, entry: str, name: str, team: str | None
    ) -> str | None:
        """Return the team that the application is for. Raise Forbidden if a member applies for another team."""
        found = entry_of(self._registry.snapshot, entry, name)
        if found is None and kind not in CREATING:
            found = await getattr(self._registry, entry)(name)
        is_member = caller.kind == "member"
        if found is not None:
            if is_member and not caller.owns(found):
                raise Forbidden(f"No team of {caller.name} owns {entry} {name}.")
            if kind not in CREATING:
                return str(found.team) if found.team else None
        if team is None and len(caller.teams) == 1:
            (team,) = caller.teams
        if is_member and team not in caller.teams:
            raise InvalidValue("team must be one of your teams", field="team")
        return team

    def _is_automatic(self, application: Application) -> bool:
        return not {str(application.kind), f"{application.kind}:{application.team}"}.isdisjoint(self._settings.auto)

    async def get(self, application_id: str) -> Application:
        application = await self._store.get(application_id)
        if application is None:
            raise ApplicationNotFound(f"Application {application_id} does not exist.")
        return application

    async def list(
        self, *, state: ApplicationState | None, applicant: str | None, limit: int, after: str | None
    ) -> tuple[Sequence[Application], str | None]:
        return await self._store.list(state=state, applicant=applicant, limit=limit, after=after)

    async def approve(self, caller: Principal, application_id: str, reason: str | None) -> Application:
        """Approve an application of somebody else. It is applied in the background."""
        application = await self.get(application_id)
        if application.applicant == caller.name and not self._settings.own:
            raise Forbidden("Nobody approves an application of their own. Ask another operator.")
        changed = await self._decide(caller, application, "approve", reason, next_attempt_at=self._clock())
        self._approved()
        return changed

    async def decline(self, caller: Principal, application_id: str, reason: str | None) -> Application:
        """Decline an application, with a reason."""
        if not reason:
            raise InvalidValue("reason is required: the applicant has to know why", field="reason")
        return await self._decide(caller, await self.get(application_id), "decline", reason)

    async def withdraw(self, caller: Principal, application_id: str, reason: str | None) -> Application:
        """Withdraw an application of the caller."""
        application = await self.get(application_id)
        if application.applicant != caller.name:
            raise Forbidden("Only the applicant withdraws an application. An operator declines it.")
        return await self._decide(caller, application, "withdraw", reason)

    async def retry(self, caller: Principal, application_id: str, reason: str | None) -> Application:
        """Apply a failed application again."""
        application = await self.get(application_id)
        state = next_state(application, "retry")
        changed = replace(
            application, state=state, version=application.version + 1, next_attempt_at=self._clock(), attempts=0
        )
        await self._store.change(changed, self._audit(caller.name, "retry", changed, reason))
        self._approved()
        return changed

    async def _decide(
        self,
        caller: Principal,
        application: Application,
        action: str,
        reason: str | None,
        next_attempt_at: datetime | None = None,
    ) -> Application:
        """Store a decision with its audit entry. Raise ApplicationChanged if somebody else was faster."""
        _check_reason(reason or "")
        changed = replace(
            application,
            state=next_state(application, action),
            version=application.version + 1,
            decided_by=caller.name,
            decided_at=self._clock(),
            decision_reason=reason,
            next_attempt_at=next_attempt_at,
        )
        try:
            await self._store.change(changed, self._audit(caller.name, action, changed, reason))
        except ApplicationChanged:
            next_state(await self.get(application.id), action)
            raise
        return changed

    async def take_key(self, caller: Principal, application_id: str) -> tuple[str, str]:
        """Create the approved key and return its id and text, once, to the applicant."""
        application = await self.get(application_id)
        if application.kind is not ApplicationKind.KEY or application.applicant != caller.name:
            raise Forbidden("Only the applicant of a key takes it.")
        if application.state is not ApplicationState.APPLIED:
            raise ApplicationChanged(f"Application {application.id} is {application.state}.", state=application.state)
        if application.is_key_taken:
            raise KeyAlreadyTaken("A key is handed out once. Apply for another one.")
        taken = replace(application, is_key_taken=True, version=application.version + 1)
        await self._store.change(taken, self._audit(caller.name, "take key", taken, None))
        spec = KeySpec(
            name=f"application {application.id}",
            owner=application.team or caller.account,
            **{application.entry: application.name},  # type: ignore[arg-type]  # producer or group
        )
        try:
            key, text = await self._keys.create(spec, f"application {application.id}")
        except MqgateError:
            await self._store.change(replace(application, version=taken.version + 1), None)
            raise
        return key.id, text

    def _audit(self, actor: str, action: str, application: Application, reason: str | None) -> AuditEntry:
        details = {"kind": application.kind, application.entry: application.name, "state": application.state}
        return AuditEntry(
            at=self._clock(),
            actor=actor,
            action=action,
            subject=f"application {application.id}",
            reason=reason,
            details=msgspec.json.encode(details).decode(),
        )


def _check_reason(reason: str) -> None:
    if len(reason) > _MAX_REASON:
        raise InvalidValue(f"reason may have at most {_MAX_REASON} characters", field="reason", limit=_MAX_REASON)
