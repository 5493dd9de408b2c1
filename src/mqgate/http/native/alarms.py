"""GET /v1/alarms and what operators set for it: rules and silences."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mqgate.control.alerts.model import RULES, resolve
from mqgate.control.alerts.service import AlarmService, rule_name
from mqgate.control.registry.model import Duration, Instant
from mqgate.core.alarms import Alarm, AlarmState, RuleName, RuleOverride, Silence
from mqgate.core.cursors import invalid_cursor
from mqgate.core.times import format_instant, parse_duration, parse_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query
from mqgate.http.native.registry import ListQuery, check_limit, page
from mqgate.http.native.schemas import maybe_instant
from mqgate.http.operation import describe
from mqgate.ports.alarm_store import AlarmStore

__all__ = ["AlarmOut", "AlarmsApi", "alarm_out"]

_MAX_CURSOR = 64


class AlarmQuery(Struct, rename="camel", forbid_unknown_fields=True):
    state: Literal["pending", "firing"] | None = None
    rule: str | None = None
    subject: str | None = None
    limit: int = 100
    cursor: str | None = None


class AlarmOut(Struct, rename="camel"):
    id: str
    rule: str
    subject: str
    state: str
    value: float
    threshold: float
    since: str
    fired_at: str | None
    resolved_at: str | None
    notified_at: str | None


class AlarmsOut(Struct):
    items: list[AlarmOut]
    next: str | None


class RuleSettingsOut(Struct, rename={"hold": "for", "is_enabled": "enabled"}):
    threshold: float
    hold: float
    is_enabled: bool


class SubjectRuleOut(Struct, rename={"hold": "for", "is_enabled": "enabled"}):
    subject: str
    threshold: float
    hold: float
    is_enabled: bool


class RuleOut(Struct, rename={"hold": "for", "is_enabled": "enabled"}):
    rule: str
    subject: str
    unit: str
    meaning: str
    threshold: float
    hold: float
    is_enabled: bool
    subjects: list[SubjectRuleOut]


class RulesOut(Struct):
    items: list[RuleOut]


class AlarmRuleIn(Struct, rename={"hold": "for"}, forbid_unknown_fields=True):
    threshold: float | None | UnsetType = UNSET
    hold: Duration | None | UnsetType = UNSET
    enabled: bool | None | UnsetType = UNSET


class SilenceIn(Struct, rename="camel", forbid_unknown_fields=True):
    ends_at: Instant
    rule: str | None = None
    subject: str | None = None
    reason: str | None = None


class SilenceOut(Struct, rename="camel"):
    id: str
    rule: str | None
    subject: str | None
    ends_at: str
    reason: str | None
    actor: str
    created_at: str


class SilencesOut(Struct):
    items: list[SilenceOut]
    next: str | None


_rule_in = msgspec.json.Decoder(AlarmRuleIn)
_silence_in = msgspec.json.Decoder(SilenceIn)


class AlarmsApi:
    def __init__(self, service: AlarmService, store: AlarmStore) -> None:
        self._service = service
        self._store = store

    @describe("listAlarms", "alarms", query=AlarmQuery, responses={200: AlarmsOut}, errors=(404,))
    async def list(self, request: Request) -> Response:
        """List pending and firing alarms."""
        wanted = query(request, AlarmQuery)
        rule = None if wanted.rule is None else rule_name(wanted.rule)
        found = sorted((await self._store.load()).alarms, key=lambda alarm: alarm.id)
        matching = [
            alarm
            for alarm in found
            if alarm.state in {AlarmState.PENDING, AlarmState.FIRING}
            and wanted.state in {None, alarm.state.value}
            and rule in {None, alarm.rule}
            and wanted.subject in {None, alarm.subject}
        ]
        return reply(200, _page(matching, check_limit(wanted.limit), wanted.cursor))

    @describe("alarmHistory", "alarms", query=ListQuery, responses={200: AlarmsOut})
    async def history(self, request: Request) -> Response:
        """List all alarms, newest first."""
        wanted = query(request, ListQuery)
        found, cursor = await self._store.alarms(check_limit(wanted.limit), wanted.cursor)
        return reply(200, AlarmsOut([alarm_out(alarm) for alarm in found], cursor))

    @describe("listAlarmRules", "alarms", responses={200: RulesOut})
    async def rules(self, _: Request) -> Response:
        """List the rules with their settings, and those of single subjects."""
        overrides = (await self._service.settings()).overrides
        return reply(200, RulesOut([_rule_out(rule, list(overrides.values())) for rule in RULES]))

    @describe("putAlarmRule", "alarms", request_type=AlarmRuleIn, responses={200: RuleSettingsOut}, errors=(404, 507))
    async def put_rule(self, request: Request) -> Response:
        """Change a rule for all subjects."""
        return await self._put(request, "")

    @describe(
        "putSubjectAlarmRule", "alarms", request_type=AlarmRuleIn, responses={200: RuleSettingsOut}, errors=(404, 507)
    )
    async def put_subject_rule(self, request: Request) -> Response:
        """Change a rule for one group, topic or pipeline."""
        return await self._put(request, request.path("subject"))

    async def _put(self, request: Request, subject: str) -> Response:
        rule = rule_name(request.path("rule"))
        given = decode(request.body, _rule_in)
        hold = given.hold if given.hold is UNSET or given.hold is None else parse_duration(given.hold, "for")
        changes = {"threshold": given.threshold, "hold": hold, "is_enabled": given.enabled}
        changes = {name: value for name, value in changes.items() if value is not UNSET}
        await self._service.put_override(rule, subject, changes, request.principal.name)
        overrides = (await self._service.settings()).overrides
        settings = resolve(rule, subject, overrides)
        return reply(200, RuleSettingsOut(settings.threshold, settings.hold.total_seconds(), settings.is_enabled))

    @describe("resetAlarmRule", "alarms", responses={204: None}, errors=(404, 507))
    async def reset_rule(self, request: Request) -> Response:
        """Return a rule to its defaults."""
        return await self._reset(request, "")

    @describe("resetSubjectAlarmRule", "alarms", responses={204: None}, errors=(404, 507))
    async def reset_subject_rule(self, request: Request) -> Response:
        """Remove the settings of a rule for one group, topic or pipeline."""
        return await self._reset(request, request.path("subject"))

    async def _reset(self, request: Request, subject: str) -> Response:
        await self._service.remove_override(rule_name(request.path("rule")), subject, request.principal.name)
        return Response(204)

    @describe("listSilences", "alarms", query=ListQuery, responses={200: SilencesOut})
    async def silences(self, request: Request) -> Response:
        """List the silences that have not ended."""
        return page(request, (await self._service.settings()).silences, _silence_out)

    @describe("createSilence", "alarms", request_type=SilenceIn, responses={201: SilenceOut}, errors=(404, 507))
    async def create_silence(self, request: Request) -> Response:
        """Suppress notifications of a rule, of a subject, or of both, until an instant."""
        given = decode(request.body, _silence_in)
        silence = await self._service.add_silence(
            None if given.rule is None else rule_name(given.rule),
            given.subject,
            parse_instant(given.ends_at, "endsAt"),
            given.reason,
            request.principal.name,
        )
        return reply(201, _silence_out(silence))

    @describe("deleteSilence", "alarms", responses={204: None}, errors=(404, 507))
    async def delete_silence(self, request: Request) -> Response:
        """End a silence."""
        await self._service.remove_silence(request.path("silence"), request.principal.name)
        return Response(204)


def alarm_out(alarm: Alarm) -> AlarmOut:
    return AlarmOut(
        id=alarm.id,
        rule=alarm.rule,
        subject=alarm.subject,
        state=alarm.state,
        value=alarm.value,
        threshold=alarm.threshold,
        since=format_instant(alarm.since),
        fired_at=maybe_instant(alarm.fired_at),
        resolved_at=maybe_instant(alarm.resolved_at),
        notified_at=maybe_instant(alarm.notified_at),
    )


def _page(alarms: Sequence[Alarm], limit: int, cursor: str | None) -> AlarmsOut:
    """Return a page of alarms that are sorted by id. The cursor is the last id of the previous page."""
    if cursor is not None and not (len(cursor) <= _MAX_CURSOR and cursor.isalnum()):
        raise invalid_cursor()
    rest = [alarm for alarm in alarms if cursor is None or alarm.id > cursor]
    return AlarmsOut([alarm_out(alarm) for alarm in rest[:limit]], rest[limit - 1].id if len(rest) > limit else None)


def _rule_out(rule: RuleName, overrides: Sequence[RuleOverride]) -> RuleOut:
    by_name = {override.name: override for override in overrides}
    settings, about = resolve(rule, "", by_name), RULES[rule]
    subjects = []
    for override in sorted(overrides, key=lambda each: each.subject):
        if override.rule is rule and override.subject:
            own = resolve(rule, override.subject, by_name)
            subjects.append(SubjectRuleOut(override.subject, own.threshold, own.hold.total_seconds(), own.is_enabled))
    return RuleOut(
        rule=rule,
        subject=about.subject,
        unit=about.unit,
        meaning=about.meaning,
        threshold=settings.threshold,
        hold=settings.hold.total_seconds(),
        is_enabled=settings.is_enabled,
        subjects=subjects,
    )


def _silence_out(silence: Silence) -> SilenceOut:
    return SilenceOut(
        id=silence.name,
        rule=silence.rule,
        subject=silence.subject,
        ends_at=format_instant(silence.ends_at),
        reason=silence.reason,
        actor=silence.actor,
        created_at=format_instant(silence.created_at),
    )
