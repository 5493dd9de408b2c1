"""The /mq dialect: checks of network and method, and the error format that its clients expect.

Routes accept every method, because clients expect HTTP 200 with status 500 in the body for a wrong one. Errors are
rendered here, so that the middleware does not turn them into problem documents.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from mqgate.consumption.connection import ClientDisconnected
from mqgate.consumption.positions import PositionService
from mqgate.consumption.service import ConsumptionService
from mqgate.control.access.service import Access
from mqgate.control.registry.service import Registry
from mqgate.core.errors import MqgateError
from mqgate.http.compat.mq.consume import ConsumeApi
from mqgate.http.compat.mq.consumer_config import ConsumerConfigApi
from mqgate.http.compat.mq.envelope import FAILED, Refusal, error_response, not_found_response, status_response
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
from mqgate.production.service import ProductionService
from mqgate.settings import HttpSettings, MqSettings

__all__ = ["ANY", "POST", "READ", "MqDialect", "not_found"]

ANY = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "TRACE")
READ = ("GET", "HEAD")
POST = ("POST",)
_log = structlog.get_logger()


class MqDialect:
    def __init__(
        self,
        *,
        registry: Registry,
        production: ProductionService,
        consumption: ConsumptionService,
        positions: PositionService,
        leases: LeaseStore,
        log: MessageLog,
        access: Access,
        changed: Callable[[str], None],
        http: HttpSettings,
        settings: MqSettings,
        longest_delay: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        resends = Resends()
        self._networks = NetworkAllowList(access, settings.anonymous_from)
        self.produce = ProduceApi(registry, production, http, longest_delay, clock)
        self.consume = ConsumeApi(registry, consumption, QueueInfos(log), resends, http)
        self.offsets = OffsetsApi(registry, positions, leases)
        self.config = ConsumerConfigApi(
            registry=registry,
            positions=positions,
            leases=leases,
            log=log,
            resends=resends,
            mu_header=MuHeader(settings.cipher_key),
            changed=changed,
        )

    def route(
        self,
        name: str,
        methods: tuple[str, ...],
        path: str,
        handler: Handler,
        max_body_bytes: int = SMALL_BODY,
    ) -> Operation:
        """Return an operation of the dialect. Every method is routed to it; only `methods` reach the handler."""

        async def serve(request: Request) -> Response:
            method = request.scope["method"]
            try:
                if method not in methods:
                    return status_response(FAILED, f"method {method} is not supported here: use {methods[0]}")
                return await handler(request)
            except ClientDisconnected:
                raise
            except Refusal as refusal:
                return status_response(refusal.status, refusal.message)
            except MqgateError as error:
                return error_response(error)
            except Exception:  # noqa: BLE001 - the last place that knows the error format of the dialect
                _log.exception("request failed", operation=name)
                return status_response(FAILED, f"internal error: search the gateway's log for {request.request_id}")

        return Operation(
            name=name,
            method="|".join((*ANY, "OPTIONS")),
            path=path,
            summary="mq-proxy dialect",
            tag="mq",
            handler=serve,
            is_anonymous=True,
            permit=self._networks.admit,
            max_body_bytes=max_body_bytes,
            refuse=error_response,
            ignores_query=True,
        )


async def not_found(request: Request) -> Response:
    """Respond to a path that the dialect does not have."""
    return not_found_response(request.scope["path"])
