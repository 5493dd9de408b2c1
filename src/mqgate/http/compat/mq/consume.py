"""/mq/message, /mq/ack, /mq/unlock: a locked queue at a time, its receipt as requestId.

A fetch answers at once unless `pullTimeout` asks it to wait: the bundled clients give up after a second.
"""

from datetime import timedelta

from msgspec import UNSET, Struct, UnsetType

from mqgate.consumption.acknowledge import Acknowledger, carried
from mqgate.consumption.long_poll import ClientDisconnected, LongPoll
from mqgate.consumption.receive import Receiver, ReceiveRequest, ReceiveResult, scope_of
from mqgate.control.registry.service import Registry
from mqgate.core.lease import Grant, Lease, ReceiveState, SettlementOutcome, Verb
from mqgate.core.message import Message
from mqgate.core.receipt_times import stamps
from mqgate.events.recorder import EventRecorder
from mqgate.http.compat.mq import ack_info
from mqgate.http.compat.mq.ack_info import AckInfo
from mqgate.http.compat.mq.call import Call, read_call, set_cookie
from mqgate.http.compat.mq.envelope import FAILED, Refusal, done, said
from mqgate.http.compat.mq.queue_info import QueueInfo, QueueInfos
from mqgate.http.compat.mq.resends import Resends
from mqgate.http.exchange import Request, Response
from mqgate.settings import HttpSettings
from mqgate.telemetry.metrics import Metrics

MAX_PULL_SIZE = 32
_EMPTY_STATUS = {
    ReceiveState.OK: "NO_NEW_MSG",
    ReceiveState.PAUSED: "PAUSED",
    ReceiveState.RATE_LIMITED: "RATE_LIMITED",
}
_AT_ONCE = timedelta(0)


class MessageOut(Struct, rename="camel"):
    message_id: str
    message: str
    timestamp: int


class FetchResult(Struct, rename="camel", kw_only=True):
    status: str
    request_id: str | UnsetType = UNSET
    msg_list: list[MessageOut] | UnsetType = UNSET
    msg_list_size: int
    retry_msg_list: list[MessageOut] | UnsetType = UNSET
    retry_msg_list_size: int
    queue_info: QueueInfo
    ack_info: dict[str, object]


class ConsumeApi:
    def __init__(
        self,
        *,
        registry: Registry,
        consumer: Receiver,
        long_poll: LongPoll,
        acknowledger: Acknowledger,
        queue_infos: QueueInfos,
        resends: Resends,
        metrics: Metrics,
        recorder: EventRecorder,
        settings: HttpSettings,
    ) -> None:
        self._registry = registry
        self._consumer = consumer
        self._long_poll = long_poll
        self._acknowledger = acknowledger
        self._queue_infos = queue_infos
        self._resends = resends
        self._metrics = metrics
        self._recorder = recorder
        self._settings = settings

    async def fetch(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        lease = await self._lease(call)
        wish = ReceiveRequest(
            group=call.group,
            client=call.client,
            scope=scope_of(call.group, call.client),
            most=MAX_PULL_SIZE,
            visibility=call.group.visibility,
            settlements=carried((call.request_id or "",), (lease,)),
            address=call.address,
            most_bytes=self._settings.max_answer_bytes,
        )
        received = await self._long_poll.receive(wish, call.wait, request.wait_disconnect)
        if received.batches and request.is_disconnected():
            await self._consumer.release(call.group, received)
            raise ClientDisconnected
        self._recorder.delivered(call.group, call.client, received.batches)
        acked = self._acked(call, lease, received)
        if received.grant is None and received.state is ReceiveState.BUSY:
            raise Refusal(FAILED, "no consumerQueueOffsetResult")
        messages = await self._texts(call, received)
        result = await self._result(call, received, messages, acked)
        if not call.uses_cookie:
            return done(result)
        return done(result, set_cookie(None if result.request_id is UNSET else result.request_id))

    async def ack(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        lease = await self._lease(call)
        if lease is None:
            return said(*_illegal(call))
        outcome = await self._settle(call, Verb.ACK)
        return said(*ack_info.of_ack(lease, outcome))

    async def unlock(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        lease = await self._lease(call)
        if lease is None:
            return said(*_illegal(call))
        outcome = await self._settle(call, Verb.NACK, "unlocked through /mq")
        return said(*ack_info.of_unlock(lease, outcome))

    async def _lease(self, call: Call) -> Lease | None:
        """What the requestId proves; None without one, and for one that is not this consumer's."""
        if call.request_id is None:
            return None
        (lease,) = await self._acknowledger.read(call.group, (call.request_id,))
        # Another broadcast client's receipt is genuine, but clients must not touch each other's place.
        return None if lease is None or lease.client != call.client else lease

    def _acked(self, call: Call, lease: Lease | None, received: ReceiveResult) -> AckInfo:
        if lease is None:
            if call.request_id is not None:
                self._count(call, Verb.ACK, SettlementOutcome.INVALID)
            return _illegal(call)
        outcome = received.settled[0].outcome
        self._count(call, Verb.ACK, outcome)
        return ack_info.of_ack(lease, outcome)

    async def _result(
        self, call: Call, received: ReceiveResult, messages: list[MessageOut], acked: AckInfo
    ) -> FetchResult:
        grant = received.grant
        again = [_text(message) for message in self._resends.take(call.group, call.client)]
        if grant is None:
            info = await self._queue_infos.of_nothing(call.group, received.state)
        else:
            info = await self._queue_infos.of_grant(call.group, grant, call.address)
            self._metrics.delivered.labels(call.group.name).inc(len(messages))
        return FetchResult(
            status="FOUND" if grant else _EMPTY_STATUS.get(received.state, "UNKNOWN"),
            request_id=self._receipt(received, grant) if grant else UNSET,
            msg_list=messages or UNSET,
            msg_list_size=len(messages),
            retry_msg_list=again or UNSET,
            retry_msg_list_size=len(again),
            queue_info=info,
            ack_info=acked.as_object(),
        )

    def _receipt(self, received: ReceiveResult, grant: Grant) -> str:
        return self._acknowledger.keys.sign(grant.lease, stamps(grant.granted_at, received.stored_ms))

    async def _texts(self, call: Call, received: ReceiveResult) -> list[MessageOut]:
        """The batch as text; with other bytes in it, it is a failed delivery, so that the culprit dies."""
        try:
            return [_text(message) for message in received.messages]
        except UnicodeDecodeError:
            grant = received.grant
            assert grant is not None  # noqa: S101 - for the type checker; there are messages
            receipt = self._receipt(received, grant)
            reason = "not UTF-8: /mq carries text only"
            await self._acknowledger.settle(call.group, Verb.NACK, (receipt,), delay=_AT_ONCE, reason=reason)
            raise Refusal(FAILED, f"a message of {grant.lease.queue} is {reason}") from None

    async def _settle(self, call: Call, verb: Verb, reason: str | None = None) -> SettlementOutcome:
        assert call.request_id is not None  # noqa: S101 - for the type checker; it proved a lease
        (settled,) = await self._acknowledger.settle(
            call.group, verb, (call.request_id,), delay=_AT_ONCE, reason=reason
        )
        self._count(call, verb, settled.outcome)
        return settled.outcome

    def _count(self, call: Call, verb: Verb, outcome: SettlementOutcome) -> None:
        self._metrics.settled.labels(call.group.name, verb, outcome).inc()


def _illegal(call: Call) -> AckInfo:
    return ack_info.NOTHING_TO_ACK if call.request_id is None else ack_info.ILLEGAL


def _text(message: Message) -> MessageOut:
    return MessageOut(message.id, message.body.decode(), message.stored_ms)
