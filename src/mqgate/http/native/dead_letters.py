"""Handlers that list, show, redrive and purge dead letters."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mqgate.consumption.positions import PositionService
from mqgate.consumption.redrive import MAX_LETTERS, RedriveOutcome, Redriver
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import DeadLetterNotFound, InvalidValue, UnsupportedByMode
from mqgate.core.times import format_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query, query_instant
from mqgate.http.lookup import requested_group
from mqgate.http.native.registry import check_limit
from mqgate.http.native.schemas import MessageOut, message_out
from mqgate.http.operation import describe
from mqgate.ports.dead_letters import DeadLetter, DeadLetterStore

_MAX_REDRIVE_SECONDS = 60


class DeadQuery(Struct, rename="camel", forbid_unknown_fields=True):
    key: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    limit: int = 100
    cursor: str | None = None


class OriginOut(Struct):
    topic: str
    queue: str
    offset: int


class DeadOut(Struct, rename="camel"):
    id: str
    origin: OriginOut
    deliveries: int
    first_at: str
    last_at: str
    reason: str | None
    key: str | None
    client_id: str | None


class DeadLetterDetailOut(DeadOut, rename="camel"):
    tag: str | None
    properties: dict[str, str]
    stored_at: str
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET


class DeadLetters(Struct):
    items: list[DeadOut]
    next: str | None


class ChosenIn(Struct, rename="camel", forbid_unknown_fields=True):
    ids: list[str] | UnsetType = UNSET
    all: bool = False
    rate: float | None = None
    dry_run: bool = False


class RedriveResultOut(Struct):
    id: str
    outcome: str


class RedriveOut(Struct, rename="camel"):
    dry_run: bool
    results: list[RedriveResultOut]
    more: bool


_chosen_in = msgspec.json.Decoder(ChosenIn)


class DeadLetterApi:
    def __init__(
        self, *, registry: Registry, dead_letters: DeadLetterStore, positions: PositionService, redriver: Redriver
    ) -> None:
        self._registry = registry
        self._dead_letters = dead_letters
        self._positions = positions
        self._redriver = redriver

    @describe("listDeadLetters", "operate", query=DeadQuery, responses={200: DeadLetters}, errors=(404, 507))
    async def list(self, request: Request) -> Response:
        """List dead letters, the oldest first."""
        group = await self._group(request)
        requested = query(request, DeadQuery)
        letters, next_cursor = await self._dead_letters.list(
            group.name,
            key=requested.key,
            since=query_instant(requested.from_, "from"),
            until=query_instant(requested.to, "to"),
            limit=check_limit(requested.limit),
            after=requested.cursor,
        )
        return reply(200, DeadLetters([_dead_out(letter) for letter in letters], next_cursor))

    @describe("getDeadLetter", "operate", responses={200: DeadLetterDetailOut}, errors=(404, 507))
    async def get(self, request: Request) -> Response:
        """Show a dead letter with its body."""
        group = await self._group(request)
        letters = await self._dead_letters.get(group.name, request.path("id"))
        if not letters:
            raise DeadLetterNotFound(f"Group {group.name} has no dead letter {request.path('id')}.")
        return reply(200, _dead_detail_out(letters[0]))

    @describe(
        "redriveDeadLetters",
        "operate",
        request_type=ChosenIn,
        responses={200: RedriveOut, 207: RedriveOut},
        errors=(404, 507),
    )
    async def redrive(self, request: Request) -> Response:
        """Deliver dead letters to their group again."""
        group = await self._group(request)
        if group.mode is Mode.BROADCAST:
            raise UnsupportedByMode(
                "A redriven message would reach every client of a broadcast group. Publish it again instead."
            )
        given = decode(request.body, _chosen_in)
        ids = _ids(given)
        async with self._redriver.lock(group):
            letters, more = await self._chosen(group, ids, given.rate)
            outcomes = [RedriveOutcome.REDRIVEN] * len(letters)
            if not given.dry_run:
                outcomes = await self._redriver.redrive(group, letters, given.rate)
                done = [letter for letter, outcome in zip(letters, outcomes, strict=True) if not outcome.is_left]
                await self._record(request, group, "redrive", done)
        is_complete = not any(outcome.is_left for outcome in outcomes)
        return reply(200 if is_complete else 207, _redrive_out(given, ids, letters, outcomes, more=more))

    @describe("purgeDeadLetters", "operate", request_type=ChosenIn, responses={200: RedriveOut}, errors=(404, 507))
    async def purge(self, request: Request) -> Response:
        """Delete dead letters."""
        group = await self._group(request)
        given = decode(request.body, _chosen_in)
        ids = _ids(given)
        async with self._redriver.lock(group):
            letters, more = await self._chosen(group, ids, given.rate)
            if not given.dry_run:
                await self._redriver.purge(letters, given.rate)
                await self._record(request, group, "purge", letters)
        return reply(200, _redrive_out(given, ids, letters, [RedriveOutcome.PURGED] * len(letters), more=more))

    async def _group(self, request: Request) -> Group:
        """Return the group, after dead letters were written for messages whose last lease has expired."""
        group = await requested_group(request, self._registry)
        await self._positions.write_dead_letters(group)
        return group

    async def _chosen(
        self, group: Group, ids: Sequence[str] | None, rate: float | None
    ) -> tuple[Sequence[DeadLetter], bool]:
        """Return the chosen dead letters, and whether there are more. Raise InvalidValue for an unsuitable rate."""
        if rate is not None and not 0 < rate <= 1_000_000:  # noqa: PLR2004 - a higher rate is no limit
            raise InvalidValue("rate must be greater than 0 messages per second", field="rate")
        letters, more = await self._redriver.choose(group, ids)
        if rate is not None and len(letters) / rate > _MAX_REDRIVE_SECONDS:
            raise InvalidValue("The redrive would take longer than 60 s. Use fewer ids or a higher rate.", field="rate")
        return letters, more

    async def _record(self, request: Request, group: Group, action: str, letters: Sequence[DeadLetter]) -> None:
        details = {"ids": [letter.message.id for letter in letters]}
        await self._registry.record(request.principal.name, action, f"group {group.name}", None, details)


def _ids(given: ChosenIn) -> Sequence[str] | None:
    if (given.ids is UNSET) == (not given.all):
        raise InvalidValue('Provide either "ids": [...] or "all": true.', field="ids")
    if given.ids is UNSET:
        return None
    if not 1 <= len(given.ids) <= MAX_LETTERS:
        raise InvalidValue(f"ids must have 1 to {MAX_LETTERS} items", field="ids", limit=MAX_LETTERS)
    return given.ids


def _redrive_out(
    given: ChosenIn,
    ids: Sequence[str] | None,
    letters: Sequence[DeadLetter],
    outcomes: Sequence[RedriveOutcome],
    *,
    more: bool,
) -> RedriveOut:
    results = [(letter.message.id, outcome) for letter, outcome in zip(letters, outcomes, strict=True)]
    if ids is not None:
        # A message may have several dead letters. If one of them is left, its outcome is reported.
        by_id = dict(sorted(results, key=lambda result: result[1].is_left))
        results = [(message_id, by_id.get(message_id, RedriveOutcome.NOT_FOUND)) for message_id in dict.fromkeys(ids)]
    return RedriveOut(given.dry_run, [RedriveResultOut(*result) for result in results], more)


def _dead_out(letter: DeadLetter) -> DeadOut:
    message = letter.message
    return DeadOut(
        id=message.id,
        origin=OriginOut(message.topic, message.queue, message.offset),
        deliveries=letter.deliveries,
        first_at=format_instant(letter.first_at),
        last_at=format_instant(letter.last_at),
        reason=letter.reason,
        key=message.key,
        client_id=letter.client or None,
    )


def _dead_detail_out(letter: DeadLetter) -> DeadLetterDetailOut:
    short = _dead_out(letter)
    message: MessageOut = message_out(letter.message)
    return DeadLetterDetailOut(
        **{name: getattr(short, name) for name in short.__struct_fields__},
        tag=message.tag,
        properties=message.properties,
        stored_at=message.stored_at,
        body=message.body,
        body_base64=message.body_base64,
    )
