"""/mq/produce: publish one text message. The caller chooses its queue by orderId, by ordered, or not at all."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from mqgate.control.registry.service import Registry
from mqgate.core.errors import MqgateError, ProducerNotFound, TooLarge
from mqgate.core.message import Draft, Stored, instant, new_id
from mqgate.core.names import MAX_PROPERTY_BYTES, check_text
from mqgate.delay.plan import plan
from mqgate.http.compat.mq.envelope import FAILED, Refusal, result_response
from mqgate.http.compat.mq.java_hash import java_hash
from mqgate.http.compat.mq.parameters import Parameters, read_parameters, trimmed
from mqgate.http.compat.mq.queue_info import MessageQueue, message_queue
from mqgate.http.exchange import Request, Response
from mqgate.production.message_writer import Item
from mqgate.production.service import ProductionService
from mqgate.settings import HttpSettings

_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
# RocketMQ's delay levels, 1 to 18.
_DELAY_LEVELS = tuple(timedelta(seconds=seconds) for seconds in _SECONDS)
_LATEST_TIMESTAMP = 253_402_300_799_999
# A scheduled message is not stored in a queue yet.
_SCHEDULED = Stored("timer:0", 0, instant(0))
_MAX_RETRIES = 10


class SendResult(Struct, rename="camel", kw_only=True):
    send_status: str
    msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    region_id: str = "DefaultRegion"
    trace_on: bool = False


class ProduceApi:
    def __init__(
        self,
        registry: Registry,
        service: ProductionService,
        settings: HttpSettings,
        longest_delay: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self._longest_delay = longest_delay
        self._clock = clock
        self._registry = registry
        self._service = service
        self._settings = settings
        # `ordered` counts in this process, so the round robin is strict for all senders of one gateway. It starts
        # again at the first queue when the process restarts.
        self._sent_in_order: dict[str, int] = {}

    async def produce(self, request: Request) -> Response:
        given = await read_parameters(request)
        name = given.required("producer")
        body = given.required("message").encode()
        limit = self._settings.max_message_bytes
        if len(body) > limit:
            raise TooLarge(f"a message may have {limit} bytes", field="message", limit=limit)
        # Checked but without effect. A failed send is reported as 500 with its reason. A retry in the background
        # would be lost with this process, and status 300 would promise one.
        given.number("asyncRetryTimesIfSendFailed", 1, _MAX_RETRIES)
        level = given.number("delayLevel", 1, len(_DELAY_LEVELS))
        timestamp = given.number("deliveryTimestamp", 0, _LATEST_TIMESTAMP)
        keys = _keys(given)
        try:
            producer = await self._registry.producer(name)
        except ProducerNotFound:
            raise Refusal(FAILED, f"producer:{name} haven't registered") from None
        request.log_fields["topic"] = producer.topic
        slot = self._slot(given, producer.topic)
        # Both kinds of ordered sends ignore the delay, as the dialect defines.
        due = self._due(level, timestamp) if slot is None else None
        # The keys are stored for look-up. Unlike a key of /v1 they do not choose the queue.
        draft = Draft(new_id(time.time_ns() // 1_000_000), body, key=keys, slot=slot)
        (outcome,) = await self._service.publish(producer.topic, name, (Item(draft, due),))
        if isinstance(outcome, MqgateError):
            raise outcome
        return result_response(_send_result(draft.id, producer.topic, outcome.stored))

    def _due(self, level: int | None, timestamp: int | None) -> datetime | None:
        delay = None if level is None else _DELAY_LEVELS[level - 1]
        at = None if timestamp is None else instant(timestamp)
        return plan(delay, at, self._clock(), self._longest_delay)

    def _slot(self, given: Parameters, topic: str) -> int | None:
        """Return the number that chooses the queue: by orderId, else by ordered, else None."""
        is_ordered = given.flag("ordered")
        order_id = trimmed(given.text("orderId") or "")
        if order_id:
            # Java's remainder keeps the sign and the dialect drops it: abs(h % n) == abs(h) % n.
            return abs(java_hash(order_id))
        if is_ordered:
            number = self._sent_in_order[topic] = self._sent_in_order.get(topic, 0) + 1
            return number
        return None


def _keys(given: Parameters) -> str | None:
    keys = given.text("keys")
    if keys is not None and len(check_text(keys, "keys").encode()) > MAX_PROPERTY_BYTES:
        raise TooLarge("keys may have 30 KiB", field="keys", limit=MAX_PROPERTY_BYTES)
    return keys


def _send_result(message_id: str, topic: str, stored: Stored | None) -> SendResult:
    stored = stored or _SCHEDULED
    return SendResult(
        # Degraded covers four statuses of the broker. This one promises the least.
        send_status="FLUSH_DISK_TIMEOUT" if stored.is_degraded else "SEND_OK",
        msg_id=message_id,
        message_queue=message_queue(topic, stored.queue),
        queue_offset=stored.offset,
        # One id is enough to find a message, so there is no second id made of a broker address.
        offset_msg_id=message_id,
    )
