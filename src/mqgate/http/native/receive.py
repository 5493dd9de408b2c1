"""Receive and settle: POST /v1/groups/{group}/receive, ack, nack, extend."""

from collections.abc import Coroutine, Iterable, Sequence
from datetime import timedelta
from itertools import groupby, repeat
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mqgate.consumption.acknowledge import Acknowledger, carried, merge
from mqgate.consumption.long_poll import ClientDisconnected, LongPoll
from mqgate.consumption.pull import DeliveredBatch
from mqgate.consumption.receive import Receiver, ReceiveRequest, ReceiveResult, scope_of
from mqgate.control.registry.model import Duration, check_visibility
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import InvalidValue, UnsupportedByMode
from mqgate.core.lease import Lease, SettlementOutcome, SettlementResult, Verb, attempt_fingerprint
from mqgate.core.names import check_client
from mqgate.core.receipt import ReceiptKeys
from mqgate.core.receipt_times import of_messages, stamps
from mqgate.core.times import format_instant, format_ms, parse_duration
from mqgate.events.recorder import EventRecorder
from mqgate.http.errors import problem, refusal
from mqgate.http.exchange import Request, Response, refuse, reply
from mqgate.http.json_input import decode
from mqgate.http.native.schemas import LeaseOut, MessageOut, OutcomeOut, Outcomes, ReceiveOut, texts_or_base64
from mqgate.http.operation import describe
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics

_LONGEST_WAIT = timedelta(seconds=60)
_LONGEST_DELAY = timedelta(hours=12)
_LONGEST_REASON = 1_000
_LONGEST_ATTEMPT = 128
Receipt = Annotated[str, Meta(description="As it was received; opaque.")]


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
# Never changed, so one of each serves all.
_PLAIN = {outcome: OutcomeOut(outcome) for outcome in SettlementOutcome}
_receive_in = msgspec.json.Decoder(ReceiveIn)
_ack_in = msgspec.json.Decoder(AckIn)
_nack_in = msgspec.json.Decoder(NackIn)
_extend_in = msgspec.json.Decoder(ExtendIn)


def _may_consume(request: Request) -> None:
    request.principal.need_group(request.path("group"))


class ReceiveApi:
    def __init__(
        self,
        *,
        registry: Registry,
        receiver: Receiver,
        long_poll: LongPoll,
        acknowledger: Acknowledger,
        metrics: Metrics,
        recorder: EventRecorder,
        settings: HttpSettings,
    ) -> None:
        self._registry = registry
        self._receiver = receiver
        self._long_poll = long_poll
        self._acknowledger = acknowledger
        self._metrics = metrics
        self._recorder = recorder
        self._settings = settings

    @describe(
        "receive",
        "consume",
        request_type=ReceiveIn,
        is_body_optional=True,
        responses={200: ReceiveOut},
        errors=(404, 409, 429, 507),
        permit=_may_consume,
    )
    async def receive(self, request: Request) -> Response:
        """Receive messages, and acknowledge earlier ones."""
        group = await self._group(request)
        given = decode(request.body, _receive_in) if request.body else ReceiveIn()
        leases = await self._acknowledger.read(group, given.ack)
        if group.mode is Mode.BROADCAST:
            # No client moves another one's place.
            leases = [lease if lease and lease.client == given.client_id else None for lease in leases]
        wish = self._wish(request, group, given, leases)
        received = await self._long_poll.receive(wish, _wait(given), request.wait_disconnect)
        if received.batches and request.is_disconnected():
            await self._long_poll.release(group, received)
            raise ClientDisconnected
        self._recorder.delivered(group, wish.client, received.batches)
        return reply(200, self._received(group, received, leases))

    def _wish(self, request: Request, group: Group, given: ReceiveIn, leases: list[Lease | None]) -> ReceiveRequest:
        most = self._settings.max_batch
        if not 1 <= given.max <= most:
            raise InvalidValue(f"max must be 1 to {most}", field="max", limit=most)
        if len(given.ack) > most:
            raise InvalidValue(f"ack may have {most} receipts", field="ack", limit=most)
        if given.client_id is not None:
            check_client(given.client_id)
        elif group.mode is Mode.BROADCAST:
            raise InvalidValue("a broadcast group needs clientId: it keeps a place for each client", field="clientId")
        if given.attempt_id is not None and not 1 <= len(given.attempt_id) <= _LONGEST_ATTEMPT:
            raise InvalidValue(f"attemptId must be 1 to {_LONGEST_ATTEMPT} characters", field="attemptId")
        visibility = None
        if given.visibility is not UNSET:
            visibility = check_visibility(parse_duration(given.visibility, "visibility"))
        client = given.client_id or ""
        held = group.visibility if visibility is None else visibility
        wanted = client, scope_of(group, client), given.max, held, self._settings.max_answer_bytes
        shape = "" if given.attempt_id is None else attempt_fingerprint(given.max, visibility)
        settlements = carried(given.ack, leases)
        key = request.principal.key_id
        return ReceiveRequest(group, *wanted, given.attempt_id, settlements, request.address, shape, key)

    def _received(self, group: Group, received: ReceiveResult, leases: list[Lease | None]) -> ReceiveOut:
        acked = merge(leases, received.settled)
        keys = self._acknowledger.keys
        is_single = group.mode is Mode.MESSAGE
        messages = _messages(received.batches, keys if is_single else None)
        self._metrics.delivered.labels(group.name).inc(len(messages))
        answer = ReceiveOut(messages=messages, acked=self._told(group, Verb.ACK, acked), state=received.state)
        grant = received.grant
        if grant is not None and not is_single:
            until = messages[0].leased_until
            assert until is not UNSET  # noqa: S101 - for the type checker; a batch is leased as a whole
            answer.lease = LeaseOut(
                receipt=keys.sign(grant.lease, stamps(grant.granted_at, received.stored_ms)),
                queue=grant.lease.queue,
                start=grant.lease.start,
                next=grant.lease.next,
                leased_until=until,
                delivery=grant.delivery,
            )
        if received.is_registered:
            answer.registered = True
        if received.expired:
            answer.expired = received.expired
        if received.rewound:
            answer.rewound = received.rewound
        return answer

    @describe(
        "ack", "consume", request_type=AckIn, responses=_SETTLED, errors=(404, 409, 410, 507), permit=_may_consume
    )
    async def ack(self, request: Request) -> Response:
        """Acknowledge messages."""
        group = await self._group(request)
        given = decode(request.body, _ack_in)
        receipts = self._receipts(given)
        if given.through is not None and given.receipts is not UNSET:
            raise InvalidValue("through goes with one receipt", field="through")
        if given.through is not None and group.mode is Mode.MESSAGE:
            raise UnsupportedByMode("a receipt of message mode is for one message: leave through out", field="through")
        settled = await self._acknowledger.settle(group, Verb.ACK, receipts, through=given.through)
        return self._settled(group, Verb.ACK, given, settled)

    @describe(
        "nack", "consume", request_type=NackIn, responses=_SETTLED, errors=(404, 409, 410, 507), permit=_may_consume
    )
    async def nack(self, request: Request) -> Response:
        """Release messages for another delivery."""
        group = await self._group(request)
        given = decode(request.body, _nack_in)
        receipts = self._receipts(given)
        delay = None if given.delay is UNSET else parse_duration(given.delay, "delay")
        if delay is not None and delay > _LONGEST_DELAY:
            raise InvalidValue("delay must be at most 12 h", field="delay", limit=_LONGEST_DELAY.total_seconds())
        if given.reason is not None and len(given.reason) > _LONGEST_REASON:
            raise InvalidValue(f"reason may have {_LONGEST_REASON} characters", field="reason", limit=_LONGEST_REASON)
        settled = await self._acknowledger.settle(group, Verb.NACK, receipts, delay=delay, reason=given.reason)
        return self._settled(group, Verb.NACK, given, settled)

    @describe(
        "extend", "consume", request_type=ExtendIn, responses=_SETTLED, errors=(404, 409, 410, 507), permit=_may_consume
    )
    async def extend(self, request: Request) -> Response:
        """Extend the leases of messages."""
        group = await self._group(request)
        given = decode(request.body, _extend_in)
        receipts = self._receipts(given)
        visibility = group.visibility
        if given.visibility is not UNSET:
            visibility = check_visibility(parse_duration(given.visibility, "visibility"))
        settled = await self._acknowledger.settle(group, Verb.EXTEND, receipts, visibility=visibility)
        return self._settled(group, Verb.EXTEND, given, settled)

    def _group(self, request: Request) -> Coroutine[Any, Any, Group]:
        return self._registry.group(request.path("group"))

    def _receipts(self, given: AckIn | NackIn | ExtendIn) -> list[str]:
        if (given.receipt is UNSET) == (given.receipts is UNSET):
            raise InvalidValue("say receipt or receipts, one of them", field="receipt")
        if given.receipt is not UNSET:
            return [given.receipt]
        assert given.receipts is not UNSET  # noqa: S101 - for the type checker; looked at above
        most = self._settings.max_batch
        if not 1 <= len(given.receipts) <= most:
            raise InvalidValue(f"receipts must be 1 to {most}", field="receipts", limit=most)
        return given.receipts

    def _settled(
        self, group: Group, verb: Verb, given: AckIn | NackIn | ExtendIn, settled: list[SettlementResult]
    ) -> Response:
        told = self._told(group, verb, settled)
        if given.receipts is UNSET:
            (only,) = settled
            return reply(200, told[0]) if only.outcome.is_done else refuse(refusal(only))
        is_whole = all(each.outcome.is_done for each in settled)
        return reply(200 if is_whole else 207, Outcomes(told))

    def _told(self, group: Group, verb: Verb, settled: list[SettlementResult]) -> list[OutcomeOut]:
        """What became of settlements, counted; mostly the same of all of them."""
        found: list[OutcomeOut] = []
        for each, alike in groupby(settled):
            count = len(list(alike))
            self._metrics.settled.labels(group.name, verb, each.outcome).inc(count)
            found += [_outcome(each)] * count
        return found


def _wait(given: ReceiveIn) -> timedelta:
    wait = parse_duration(given.wait, "wait")
    if wait > _LONGEST_WAIT:
        raise InvalidValue("wait must be 0 to 60 s", field="wait", limit=60)
    return wait


def _messages(batches: Sequence[DeliveredBatch], signing: ReceiptKeys | None) -> list[MessageOut]:
    """The messages of an answer, made of columns: there may be a thousand of them; with a receipt each, if signed."""
    found: list[MessageOut] = []
    for grant, messages in batches:
        ids, topics, queues, offsets, bodies, keys, tags, properties, stored_ms = zip(*messages, strict=True)
        proofs: Iterable[str | UnsetType] = repeat(UNSET)
        if signing is not None:
            proofs = signing.sign_each(grant.lease, stamps(grant.granted_at), of_messages(offsets, stored_ms))
        about = ids, topics, queues, offsets, keys, tags, properties, map(format_ms, stored_ms)
        lease = repeat(grant.delivery), proofs, repeat(format_instant(grant.leased_until))
        found += map(MessageOut, *about, *texts_or_base64(bodies), *lease)
    return found


def _outcome(settled: SettlementResult) -> OutcomeOut:
    if settled.leased_until is None and settled.error is None:
        return _PLAIN[settled.outcome]
    answer = OutcomeOut(settled.outcome)
    if settled.leased_until is not None:
        answer.leased_until = format_instant(settled.leased_until)
    if settled.error is not None:
        answer.error = problem(settled.error)
    return answer
