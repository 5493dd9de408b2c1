"""Receive and settle: POST /v1/groups/{group}/receive, ack, nack, extend."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby, repeat
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mqgate.consumption.receive import ReceiveResult
from mqgate.consumption.service import ConsumptionService, SettledReceipts
from mqgate.control.registry.model import Duration, check_visibility
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import InvalidValue, UnsupportedByMode
from mqgate.core.lease import SettlementOutcome, SettlementResult
from mqgate.core.names import check_client
from mqgate.core.times import format_instant, format_ms, parse_duration
from mqgate.http.errors import problem, refusal
from mqgate.http.exchange import Request, Response, refuse, reply
from mqgate.http.json_input import decode
from mqgate.http.lookup import requested_group
from mqgate.http.native.schemas import LeaseOut, MessageOut, OutcomeOut, Outcomes, ReceiveOut, texts_or_base64
from mqgate.http.operation import describe
from mqgate.settings import HttpSettings

_NO_WAIT = timedelta(0)
_MAX_WAIT = timedelta(seconds=60)
_MAX_DELAY = timedelta(hours=12)
_MAX_REASON = 1_000
_MAX_ATTEMPT_LENGTH = 128
Receipt = Annotated[str, Meta(description="An opaque text, as it was received.")]


class ReceiveIn(Struct, rename="camel", forbid_unknown_fields=True):
    max: int = 32
    wait: Duration = 0
    visibility: Duration | UnsetType = UNSET
    client_id: str | None = None
    attempt_id: str | None = None
    ack: list[Receipt] = []


class AckIn(Struct, rename="camel", forbid_unknown_fields=True):
    receipt: Receipt | UnsetType = UNSET
    receipts: list[Receipt] | UnsetType = UNSET
    through: int | None = None


class NackIn(Struct, rename="camel", forbid_unknown_fields=True):
    receipt: Receipt | UnsetType = UNSET
    receipts: list[Receipt] | UnsetType = UNSET
    delay: Duration | UnsetType = UNSET
    reason: str | None = None


class ExtendIn(Struct, rename="camel", forbid_unknown_fields=True):
    receipt: Receipt | UnsetType = UNSET
    receipts: list[Receipt] | UnsetType = UNSET
    visibility: Duration | UnsetType = UNSET


_SETTLED = {200: (OutcomeOut, Outcomes), 207: Outcomes}
# Never changed, so responses can share them.
_PLAIN = {outcome: OutcomeOut(outcome) for outcome in SettlementOutcome}
_receive_in = msgspec.json.Decoder(ReceiveIn)
_ack_in = msgspec.json.Decoder(AckIn)
_nack_in = msgspec.json.Decoder(NackIn)
_extend_in = msgspec.json.Decoder(ExtendIn)


class ReceiveApi:
    def __init__(self, registry: Registry, service: ConsumptionService, settings: HttpSettings) -> None:
        self._registry = registry
        self._service = service
        self._settings = settings

    @describe(
        "receive",
        "consume",
        request_type=ReceiveIn,
        is_body_optional=True,
        responses={200: ReceiveOut},
        errors=(404, 409, 429, 507),
    )
    async def receive(self, request: Request) -> Response:
        """Receive messages, and acknowledge earlier ones."""
        group = await requested_group(request, self._registry)
        given = decode(request.body, _receive_in) if request.body else ReceiveIn()
        self._check(given, group)
        received = await self._service.receive(
            group,
            given.client_id or "",
            request,
            max_messages=given.max,
            max_bytes=self._settings.max_answer_bytes,
            wait=_wait(given),
            visibility=None if given.visibility is UNSET else _visibility(given.visibility),
            receipts=given.ack,
            attempt=given.attempt_id,
            address=request.address,
            key_id=request.principal.key_id,
        )
        return reply(200, _rendered(received))

    def _check(self, given: ReceiveIn, group: Group) -> None:
        limit = self._settings.max_batch
        if not 1 <= given.max <= limit:
            raise InvalidValue(f"max must be 1 to {limit}", field="max", limit=limit)
        if len(given.ack) > limit:
            raise InvalidValue(f"ack may have {limit} receipts", field="ack", limit=limit)
        if given.client_id is not None:
            check_client(given.client_id)
        elif group.mode is Mode.BROADCAST:
            raise InvalidValue("clientId is required for broadcast groups", field="clientId")
        if given.attempt_id is not None and not 1 <= len(given.attempt_id) <= _MAX_ATTEMPT_LENGTH:
            raise InvalidValue(f"attemptId must be 1 to {_MAX_ATTEMPT_LENGTH} characters", field="attemptId")

    @describe("ack", "consume", request_type=AckIn, responses=_SETTLED, errors=(404, 409, 410, 507))
    async def ack(self, request: Request) -> Response:
        """Acknowledge messages."""
        group = await requested_group(request, self._registry)
        given = decode(request.body, _ack_in)
        receipts = self._receipts(given)
        if given.through is not None and given.receipts is not UNSET:
            raise InvalidValue("through requires a single receipt", field="through")
        if given.through is not None and group.mode is Mode.MESSAGE:
            raise UnsupportedByMode("a receipt of message mode is for one message: leave through out", field="through")
        return _settled(given, await self._service.ack(group, receipts, through=given.through))

    @describe("nack", "consume", request_type=NackIn, responses=_SETTLED, errors=(404, 409, 410, 507))
    async def nack(self, request: Request) -> Response:
        """Release messages for another delivery."""
        group = await requested_group(request, self._registry)
        given = decode(request.body, _nack_in)
        receipts = self._receipts(given)
        delay = None if given.delay is UNSET else parse_duration(given.delay, "delay")
        if delay is not None and delay > _MAX_DELAY:
            raise InvalidValue("delay must be at most 12 h", field="delay", limit=_MAX_DELAY.total_seconds())
        if given.reason is not None and len(given.reason) > _MAX_REASON:
            raise InvalidValue(f"reason may have {_MAX_REASON} characters", field="reason", limit=_MAX_REASON)
        return _settled(given, await self._service.nack(group, receipts, delay=delay, reason=given.reason))

    @describe("extend", "consume", request_type=ExtendIn, responses=_SETTLED, errors=(404, 409, 410, 507))
    async def extend(self, request: Request) -> Response:
        """Extend the leases of messages."""
        group = await requested_group(request, self._registry)
        given = decode(request.body, _extend_in)
        receipts = self._receipts(given)
        visibility = group.visibility if given.visibility is UNSET else _visibility(given.visibility)
        return _settled(given, await self._service.extend(group, receipts, visibility))

    def _receipts(self, given: AckIn | NackIn | ExtendIn) -> Sequence[str]:
        if (given.receipt is UNSET) == (given.receipts is UNSET):
            raise InvalidValue("provide either receipt or receipts", field="receipt")
        if given.receipt is not UNSET:
            return (given.receipt,)
        assert given.receipts is not UNSET  # noqa: S101 - for the type checker; tested above
        limit = self._settings.max_batch
        if not 1 <= len(given.receipts) <= limit:
            raise InvalidValue(f"receipts must be 1 to {limit}", field="receipts", limit=limit)
        return given.receipts


def _wait(given: ReceiveIn) -> timedelta:
    if given.wait == 0:
        return _NO_WAIT
    wait = parse_duration(given.wait, "wait")
    if wait > _MAX_WAIT:
        raise InvalidValue("wait must be 0 to 60 s", field="wait", limit=60)
    return wait


def _visibility(given: Duration) -> timedelta:
    return check_visibility(parse_duration(given, "visibility"))


def _rendered(received: ReceiveResult) -> ReceiveOut:
    messages = _messages(received)
    content = ReceiveOut(messages=messages, acked=_outcomes(received.settled), state=received.state)
    if received.receipt:
        grant = received.batches[0].grant
        until = messages[0].leased_until
        assert until is not UNSET  # noqa: S101 - for the type checker; a batch is leased as a whole
        content.lease = LeaseOut(
            receipt=received.receipt,
            queue=grant.lease.queue,
            start=grant.lease.start,
            next=grant.lease.next,
            leased_until=until,
            delivery=grant.delivery,
        )
    if received.is_registered:
        content.registered = True
    if received.expired:
        content.expired = received.expired
    if received.rewound:
        content.rewound = received.rewound
    return content


def _messages(received: ReceiveResult) -> list[MessageOut]:
    """Return the messages of a response. They are built from columns because there may be a thousand of them."""
    found: list[MessageOut] = []
    receipts = iter(received.receipts)
    for grant, messages in received.batches:
        page = messages
        position = repeat(page.topic), repeat(page.queue), page.offsets
        columns = page.ids, *position, page.keys, page.tags, page.properties, map(format_ms, page.stored_ms)
        # Without receipts of their own the messages share the receipt of the batch.
        lease = repeat(grant.delivery), next(receipts, repeat(UNSET)), repeat(format_instant(grant.leased_until))
        found += map(MessageOut, *columns, *texts_or_base64(page.bodies), *lease)
    return found


def _settled(given: AckIn | NackIn | ExtendIn, settled: SettledReceipts) -> Response:
    outcomes = _outcomes(settled.results)
    if given.receipts is UNSET:
        (result,) = settled.results
        return reply(200, outcomes[0]) if result.outcome.is_done else refuse(refusal(result))
    is_complete = all(result.outcome.is_done for result in settled.results)
    return reply(200 if is_complete else 207, Outcomes(outcomes))


def _outcomes(results: Sequence[SettlementResult]) -> list[OutcomeOut]:
    found: list[OutcomeOut] = []
    # Most results of a request are equal.
    for result, equal in groupby(results):
        found += [_outcome(result)] * len(list(equal))
    return found


def _outcome(result: SettlementResult) -> OutcomeOut:
    if result.leased_until is None and result.error is None:
        return _PLAIN[result.outcome]
    content = OutcomeOut(result.outcome)
    if result.leased_until is not None:
        content.leased_until = format_instant(result.leased_until)
    if result.error is not None:
        content.error = problem(result.error)
    return content
