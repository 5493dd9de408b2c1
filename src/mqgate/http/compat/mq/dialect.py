"""The dialect's routes, and what every one of them passes: network, method, errors.

Every method leads here, so that a wrong one is answered as its clients know it (HTTP 200, status 500 in the
body). An error becomes an envelope here, before the door could make a problem document of it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from mqgate.consumption.acknowledge import Acknowledger
from mqgate.consumption.long_poll import ClientDisconnected, LongPoll
from mqgate.consumption.positions import PositionService
from mqgate.consumption.receive import Receiver
from mqgate.control.access.service import Access
from mqgate.control.registry.service import Registry
from mqgate.core.errors import MqgateError
from mqgate.http.compat.mq.consume import ConsumeApi
from mqgate.http.compat.mq.consumer_config import ConsumerConfigApi
from mqgate.http.compat.mq.envelope import FAILED, Refusal, failed, not_there, said
from mqgate.http.compat.mq.mu_header import MuHeader
from mqgate.http.compat.mq.network_allow_list import NetworkAllowList
from mqgate.http.compat.mq.offsets import OffsetsApi
from mqgate.http.compat.mq.produce import ProduceApi
from mqgate.http.compat.mq.queue_info import QueueInfos
from mqgate.http.compat.mq.resends import Resends
from mqgate.http.exchange import Request, Response
from mqgate.http.operation import SMALL_BODY, Handler, Operation
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import MessageLog
from mqgate.production.publish import Publisher
from mqgate.settings import HttpSettings, MqSettings
from mqgate.telemetry.metrics import Metrics
from mqgate.telemetry.recorder import EventRecorder

_ANY = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "TRACE")
_READ = ("GET", "HEAD")
_POST = ("POST",)
_log = structlog.get_logger()


class MqDialect:
    def __init__(
        self,
        *,
        registry: Registry,
        publisher: Publisher,
        consumer: Receiver,
        long_poll: LongPoll,
        acknowledger: Acknowledger,
        positions: PositionService,
        leases: LeaseStore,
        log: MessageLog,
        access: Access,
        metrics: Metrics,
        recorder: EventRecorder,
        http: HttpSettings,
        settings: MqSettings,
        longest_delay: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        resends = Resends()
        # A form may write each byte of the message with three characters.
        self._max_produce_bytes = 3 * http.max_message_bytes + SMALL_BODY
        self._visitors = NetworkAllowList(access, settings.anonymous_from)
        self._produce = ProduceApi(registry, publisher, recorder, http, longest_delay, clock)
        self._consume = ConsumeApi(
            registry=registry,
            consumer=consumer,
            long_poll=long_poll,
            acknowledger=acknowledger,
            queue_infos=QueueInfos(log),
            resends=resends,
            metrics=metrics,
            recorder=recorder,
            settings=http,
        )
        self._offsets = OffsetsApi(registry, positions, leases)
        self._config = ConsumerConfigApi(
            registry=registry,
            positions=positions,
            leases=leases,
            log=log,
            resends=resends,
            badges=MuHeader(settings.cipher_key),
            changed=long_poll.changed,
        )

    def operations(self) -> list[Operation]:
        table: tuple[tuple[str, str, tuple[str, ...], Handler], ...] = (
            ("mqProduce", "/mq/produce", _POST, self._produce.produce),
            ("mqMessage", "/mq/message", _ANY, self._consume.fetch),
            ("mqAck", "/mq/ack", _ANY, self._consume.ack),
            ("mqUnlock", "/mq/unlock", _ANY, self._consume.unlock),
            ("mqClusteringOffset", "/mq/clustering/queue/offset", _READ, self._offsets.queue_offsets),
            ("mqBroadcastOffset", "/mq/broadcast/queue/offset", _READ, self._offsets.queue_offsets),
            ("mqConfig", "/mq/config/{consumer}", _READ, self._offsets.config),
            ("mqConsumerConfig", "/mq/consumer/config", _POST, self._config.configure),
            # Two addresses, one check: the original guards the first and serves the second.
            ("mqConsumerUnregister", "/mq/consumer/unregister", _POST, self._config.unregister),
            ("mqUnregister", "/mq/unregister", _POST, self._config.unregister),
            ("mqNotThere", "/mq/{rest:path}", _ANY, _not_there),
        )
        return [self._operation(*row) for row in table]

    def _operation(self, name: str, path: str, methods: tuple[str, ...], handler: Handler) -> Operation:
        async def serve(request: Request) -> Response:
            method = request.scope["method"]
            try:
                if method not in methods:
                    return said(FAILED, f"method {method} is not supported here: use {methods[0]}")
                return await handler(request)
            except ClientDisconnected:
                raise
            except Refusal as refusal:
                return said(refusal.status, refusal.message)
            except MqgateError as error:
                return failed(error)
            except Exception:  # noqa: BLE001 - the outermost place that knows how the dialect says it
                _log.exception("request failed", request_id=request.request_id, operation=name)
                return said(FAILED, f"a bug in mqgate: look for {request.request_id} in the gateway's log")

        return Operation(
            name=name,
            method="|".join((*_ANY, "OPTIONS")),
            path=path,
            summary="mq-proxy's own",
            tag="mq",
            handler=serve,
            is_anonymous=True,
            permit=self._visitors.admit,
            max_body_bytes=self._max_produce_bytes if name == "mqProduce" else SMALL_BODY,
            refuse=failed,
            ignores_query=True,
        )


async def _not_there(request: Request) -> Response:
    return not_there(request.scope["path"])
