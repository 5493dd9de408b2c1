"""/mq/message, /mq/ack and /mq/unlock: one leased queue at a time, with its receipt as requestId.

A fetch responds at once unless it has a `pullTimeout`: the bundled clients time out after one second.
"""

from datetime import timedelta

from msgspec import UNSET, Struct, UnsetType

from mqgate.consumption.receive import ReceiveResult
from mqgate.consumption.service import ConsumptionService
from mqgate.control.registry.service import Registry
from mqgate.core.lease import ReceiveState
from mqgate.core.message import Message
from mqgate.http.compat.mq import ack_info
from mqgate.http.compat.mq.call import Call, read_call, set_cookie
from mqgate.http.compat.mq.envelope import FAILED, Refusal, result_response, status_response
from mqgate.http.compat.mq.queue_info import QueueInfo, QueueInfos
from mqgate.http.compat.mq.resends import Resends
from mqgate.http.exchange import Request, Response
from mqgate.settings import HttpSettings

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
        registry: Registry,
        service: ConsumptionService,
        queue_infos: QueueInfos,
        resends: Resends,
        settings: HttpSettings,
    ) -> None:
        self._registry = registry
        self._service = service
        self._queue_infos = queue_infos
        self._resends = resends
        self._settings = settings

    async def fetch(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        received = await self._service.receive(
            call.group,
            call.client,
            request,
            max_messages=MAX_PULL_SIZE,
            max_bytes=self._settings.max_answer_bytes,
            wait=call.wait,
            receipts=() if call.request_id is None else (call.request_id,),
            address=call.address,
        )
        if received.grant is None and received.state is ReceiveState.BUSY:
            raise Refusal(FAILED, "no consumerQueueOffsetResult")
        messages = await self._texts(call, received)
        result = await self._result(call, received, messages)
        if not call.uses_cookie:
            return result_response(result)
        return result_response(result, set_cookie(received.receipt or None))

    async def ack(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        if call.request_id is None:
            return status_response(*ack_info.NOTHING_TO_ACK)
        settled = await self._service.ack(call.group, (call.request_id,), client=call.client)
        return status_response(*ack_info.of_ack(settled.leases[0], settled.results[0].outcome))

    async def unlock(self, request: Request) -> Response:
        call = await read_call(request, self._registry)
        if call.request_id is None:
            return status_response(*ack_info.NOTHING_TO_ACK)
        settled = await self._service.nack(
            call.group, (call.request_id,), client=call.client, delay=_AT_ONCE, reason="unlocked through /mq"
        )
        return status_response(*ack_info.of_unlock(settled.leases[0], settled.results[0].outcome))

    async def _result(self, call: Call, received: ReceiveResult, messages: list[MessageOut]) -> FetchResult:
        grant = received.grant
        resent = [_text(message) for message in self._resends.take(call.group, call.client)]
        if grant is None:
            info = await self._queue_infos.of_nothing(call.group, received.state)
        else:
            info = await self._queue_infos.of_grant(call.group, grant, call.address)
        acked = ack_info.NOTHING_TO_ACK
        if received.leases:
            acked = ack_info.of_ack(received.leases[0], received.settled[0].outcome)
        return FetchResult(
            status="FOUND" if grant else _EMPTY_STATUS.get(received.state, "UNKNOWN"),
            request_id=received.receipt or UNSET,
            msg_list=messages or UNSET,
            msg_list_size=len(messages),
            retry_msg_list=resent or UNSET,
            retry_msg_list_size=len(resent),
            queue_info=info,
            ack_info=acked.as_object(),
        )

    async def _texts(self, call: Call, received: ReceiveResult) -> list[MessageOut]:
        """Return the messages as texts. Nack the batch if one of them is not UTF-8."""
        try:
            return [_text(message) for message in received.messages]
        except UnicodeDecodeError:
            reason = "not UTF-8: /mq carries text only"
            await self._service.nack(call.group, (received.receipt,), delay=_AT_ONCE, reason=reason)
            queue = received.batches[0].grant.lease.queue
            raise Refusal(FAILED, f"a message of {queue} is {reason}") from None


def _text(message: Message) -> MessageOut:
    return MessageOut(message.id, message.body.decode(), message.stored_ms)
