"""The contract of application stores."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mqgate.core.application import Application, ApplicationKind, ApplicationState
from mqgate.core.errors import ApplicationChanged, DuplicateApplication, InvalidValue
from mqgate.ports.application_store import ApplicationStore
from mqgate.ports.registry_store import AuditEntry, RegistryStore
from mqgate.testing.clock import NOON

__all__ = ["ApplicationStoreContract"]

_SECOND = timedelta(seconds=1)
_AUDIT = AuditEntry(at=NOON, actor="ada", action="apply", subject="application a1", reason=None, details="{}")
Reopen = Callable[[], Awaitable[ApplicationStore]]


def _application(number: int = 1, **changes: Any) -> Application:
    application = Application(
        id=f"a{number}",
        kind=ApplicationKind.GROUP,
        entry="group",
        name=f"g{number}",
        team="payments",
        settings='{"topic":"orders"}',
        reason="O'Hara <script> \u4e2d \x00",
        applicant="account ada",
        created_at=NOON,
    )
    return replace(application, **changes)


def _decided(application: Application, **changes: Any) -> Application:
    changes = {"state": ApplicationState.APPROVED, "version": application.version + 1, **changes}
    return replace(application, decided_by="account eve", decided_at=NOON, **changes)


class ApplicationStoreContract:
    """Tests of an application store. An adapter provides `store`, the `registry_store` beside it, and `reopen`."""

    async def test_an_application_survives_a_restart_unchanged(self, store: ApplicationStore, reopen: Reopen) -> None:
        """A decision may take days."""
        application = _decided(
            _application(), next_attempt_at=NOON, error="x", plan='{"a:0":1}', attempts=3, is_key_taken=True
        )
        await store.add(_application(), _AUDIT)
        await store.change(application, None)

        again = await reopen()
        assert await again.get("a1") == application
        assert await again.get("a2") is None

    async def test_a_change_and_its_audit_entry_are_committed_together(
        self, store: ApplicationStore, registry_store: RegistryStore
    ) -> None:
        """A refused change leaves no audit entry behind."""
        await store.add(_application(), _AUDIT)
        approved = _decided(_application())
        await store.change(approved, replace(_AUDIT, action="approve"))
        with pytest.raises(ApplicationChanged):
            await store.change(approved, replace(_AUDIT, action="decline"))
        with pytest.raises(DuplicateApplication):
            await store.add(_application(2, name="g1"), replace(_AUDIT, action="apply again"))

        entries, _ = await registry_store.audit_entries(10, None)
        assert [entry.action for entry in entries] == ["approve", "apply"]

    async def test_one_of_two_concurrent_decisions_wins(self, store: ApplicationStore) -> None:
        """Two operators decide at once, through different gateways."""
        await store.add(_application(), _AUDIT)
        decisions = (_decided(_application(), state=state) for state in ApplicationState)
        results = await asyncio.gather(
            *(store.change(decision, _AUDIT) for decision in decisions), return_exceptions=True
        )

        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, ApplicationChanged) for result in results) == len(ApplicationState) - 1

    @pytest.mark.parametrize("state", list(ApplicationState))
    async def test_an_open_application_excludes_others_of_its_kind(
        self, store: ApplicationStore, state: ApplicationState
    ) -> None:
        """After it is closed, the same can be applied for again."""
        await store.add(_application(), _AUDIT)
        await store.change(_decided(_application(), state=state), None)
        other = _application(2, name="g1")

        if state in {ApplicationState.SUBMITTED, ApplicationState.APPROVED, ApplicationState.FAILED}:
            with pytest.raises(DuplicateApplication):
                await store.add(other, _AUDIT)
        else:
            await store.add(other, _AUDIT)
        await store.add(_application(3, name="g1", kind=ApplicationKind.KEY), _AUDIT)

    async def test_applications_are_listed_newest_first_by_state_and_applicant(self, store: ApplicationStore) -> None:
        """The inbox of an operator, and the own applications of a member."""
        for number in range(5):
            who = "account ada" if number % 2 else "account bob"
            await store.add(_application(number, applicant=who), _AUDIT)
        await store.change(_decided(_application(3)), None)

        async def listed(**wish: Any) -> list[str]:
            ids, after = [], None
            while True:
                page, after = await store.list(**{"state": None, "applicant": None, "limit": 2, **wish}, after=after)
                ids += [application.id for application in page]
                if after is None:
                    return ids

        assert await listed() == ["a4", "a3", "a2", "a1", "a0"]
        assert await listed(state=ApplicationState.SUBMITTED) == ["a4", "a2", "a1", "a0"]
        assert await listed(applicant="account ada") == ["a3", "a1"]
        assert await listed(applicant="' OR 1=1 --") == []
        with pytest.raises(InvalidValue):
            await store.list(state=None, applicant=None, limit=2, after="x")

    async def test_approved_applications_are_due_at_their_next_attempt(self, store: ApplicationStore) -> None:
        """Any gateway continues what another one has left."""
        for number, wait in ((1, 0), (2, 5), (3, 1)):
            await store.add(_application(number), _AUDIT)
            await store.change(_decided(_application(number), next_attempt_at=NOON + wait * _SECOND), None)
        await store.add(_application(4, next_attempt_at=NOON), _AUDIT)

        assert [application.id for application in await store.due(NOON + _SECOND, 10)] == ["a1", "a3"]
        assert [application.id for application in await store.due(NOON + _SECOND, 1)] == ["a1"]
